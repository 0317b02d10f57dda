// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verify

import (
	"maps"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// span is how many versions the histories of TestComparison_everyHistory have.
const span = 6

// sight is what two readers see of one object: the version that a list at one version
// has, and the one that a copy at another version has. 0 means that it does not exist.
type sight struct{ listedAt, copiedAt, listed, copied uint64 }

// possible returns every sight that any history of an object with versions up to span can
// cause. At each version the object is written, deleted, or left as it is.
func possible() map[sight]bool {
	all := map[sight]bool{}
	var grow func(history []uint64)
	grow = func(history []uint64) {
		version := uint64(len(history))
		if version == span+1 {
			for l := uint64(1); l <= span; l++ {
				for c := uint64(1); c <= span; c++ {
					all[sight{l, c, history[l], history[c]}] = true
				}
			}
			return
		}
		for _, next := range []uint64{history[version-1], version, 0} {
			grow(append(history[:version:version], next))
		}
	}
	grow([]uint64{0})
	return all
}

// TestComparison_everyHistory checks that a comparison reports a divergence exactly if no
// history of the object explains what the list and the copy have.
func TestComparison_everyHistory(t *testing.T) {
	explained, compared := possible(), 0
	for l := uint64(1); l <= span; l++ {
		for c := uint64(1); c <= span; c++ {
			for listed := uint64(0); listed <= l; listed++ {
				for copied := uint64(0); copied <= c; copied++ {
					s := sight{l, c, listed, copied}
					got := s.compare()
					compared++
					if diverges := got.Divergences() > 0; diverges == explained[s] {
						t.Errorf("%+v can be explained: %t, and the result is %v", s, explained[s], got)
					}
					if l == c && got.Undecided > 0 {
						t.Errorf("%+v is not decided", s)
					}
				}
			}
		}
	}
	t.Logf("%d sights, %d of them possible", compared, len(explained))
}

func (s sight) compare() *Verification {
	c := &comparison{listed: map[string]uint64{}, examples: 1, result: &Verification{Counts: map[DivergenceKind]int{}}}
	if s.listed != 0 {
		c.listed["a"] = s.listed
	}
	copied := map[string]uint64{}
	if s.copied != 0 {
		copied["a"] = s.copied
	}
	c.compare(s.listedAt, maps.All(copied), s.copiedAt)
	return c.result
}

func TestComparison_kinds(t *testing.T) {
	for want, s := range map[DivergenceKind]sight{
		DivergenceMissing: {5, 5, 3, 0},
		DivergenceExtra:   {5, 5, 0, 3},
		DivergenceStale:   {5, 5, 4, 3},
		DivergenceAhead:   {5, 5, 3, 4},
	} {
		expect.Equal(t, s.compare().Counts, map[DivergenceKind]int{want: 1})
	}
}

// TestComparison_unreadable checks that an object of the list that cannot be read causes
// no divergence, whether its key is known or not.
func TestComparison_unreadable(t *testing.T) {
	for key, undecided := range map[string]int{"a": 1, "": 2} {
		c := &comparison{listed: map[string]uint64{"b": 2}, result: &Verification{Counts: map[DivergenceKind]int{}}}
		c.skip(key)
		c.compare(5, maps.All(map[string]uint64{"a": 3, "b": 2, "c": 4}), 5)
		extra := map[DivergenceKind]int{DivergenceExtra: 1} // c
		if key == "" {
			extra = map[DivergenceKind]int{}
		}
		expect.Equal(t, c.result.Counts, extra)
		expect.Equal(t, c.result.Undecided, undecided)
	}
}
