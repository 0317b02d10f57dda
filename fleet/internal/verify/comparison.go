// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verify

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/wire"
)

// comparison compares the objects of a list, as they arrive, with a state of the copy. It
// keeps some 60 bytes for each object until it ends.
type comparison struct {
	copied   collection.State
	deep     bool
	examples int
	// transform returns an object as the copy keeps it.
	transform func(*wire.Object) (*wire.Object, error)

	// listed has the versions of the objects of the list, 0 for an object whose version is
	// not known. vague means that an object of the list has no known key.
	listed map[string]uint64
	vague  bool
	result *Verification
}

// newComparison returns a comparison with a state of the copy.
func newComparison(copied collection.State, r schema.GroupVersionResource, deep bool, examples int) *comparison {
	return &comparison{
		copied: copied, deep: deep, examples: examples, listed: make(map[string]uint64, copied.Len()),
		result: &Verification{Resource: r, Deep: deep, Counts: map[DivergenceKind]int{}},
	}
}

// room returns how many objects the list may have before it is taken for one that does not
// end.
func (c *comparison) room() int { return 2*c.copied.Len() + 100_000 }

// add handles an object of the list. An object may be added twice, if a page was read
// again.
func (c *comparison) add(o *wire.Object) error {
	c.result.Bytes += int64(o.Length())
	key := o.Key()
	was, copied := c.copied.GetRaw(key)
	if copied {
		key = was.Key() // the string that is in memory anyway
	}
	if _, again := c.listed[key]; again {
		return nil
	}
	if len(c.listed) >= c.room() {
		return fmt.Errorf("%w: the list has more than %d objects, and does not end", quota.ErrLimit, len(c.listed))
	}
	c.listed[key] = o.Version()
	if copied && o.Version() != 0 && was.Version() == o.Version() && c.differs(was, o) {
		c.report(Divergence{DivergenceWrong, key, o.Version(), was.Version()})
	}
	return nil
}

// skip handles an object of the list that could not be read.
func (c *comparison) skip(key string) {
	if key == "" {
		c.vague = true
		return
	}
	c.listed[key] = 0
}

// uidPath is the UID of an object.
var uidPath = wire.NewPath("metadata.uid")

// differs reports whether two states with the same key and version are not the same.
func (c *comparison) differs(was, o *wire.Object) bool {
	if !c.deep {
		a, readable := was.Field(uidPath)
		b, ok := o.Field(uidPath)
		return readable && ok && a != b
	}
	kept, err := c.transform(o)
	if err != nil {
		return true // the copy should not have the object in this version
	}
	return !wire.Same(was, kept) && !equal(was, kept)
}

// equal reports whether two objects have the same content. Their bytes may differ all the
// same: servers of different versions encode the same content in different ways.
func equal(a, b *wire.Object) bool {
	x, err := wire.DecodeFresh[*unstructured.Unstructured](a)
	if err != nil {
		return false
	}
	y, err := wire.DecodeFresh[*unstructured.Unstructured](b)
	return err == nil && reflect.DeepEqual(x.Object, y.Object)
}

// end compares the versions of all objects. The list is at version listedAt. The copied
// state, which may be another one than that of the comparison, is at copiedAt.
func (c *comparison) end(listedAt uint64, copied iter.Seq2[string, *wire.Object], copiedAt uint64) *Verification {
	versions := func(yield func(string, uint64) bool) {
		for key, o := range copied {
			if !yield(key, o.Version()) {
				return
			}
		}
	}
	c.result.Version, c.result.Objects = listedAt, len(c.listed)
	c.compare(listedAt, versions, copiedAt)
	slices.SortFunc(c.result.Examples, func(a, b Divergence) int { return cmp.Compare(a.Key, b.Key) })
	return c.result
}

// compare reports the objects whose versions differ. With one version for both, every
// object is decided. If the copied state is older or newer than the list, compare reports
// only differences that cannot come from a change between the two versions. All others are
// undecided:
//
//   - An object of the list cannot have changed between its own version and that of the
//     list. If the copied state is at least as new as the object, it must have that version
//     or one after the list.
//   - An object of the copied state that is not in the list was deleted after the copied
//     state or created after the list. Otherwise it must not exist.
//   - An object of the list that is not in the copied state was created after the copied
//     state or deleted after the list. Otherwise it is missing.
func (c *comparison) compare(listedAt uint64, copied iter.Seq2[string, uint64], copiedAt uint64) {
	found := 0
	for key, has := range copied {
		is, listed := c.listed[key]
		if listed {
			found++
		}
		switch {
		case !listed && (c.vague || copiedAt < listedAt || has > listedAt):
			c.result.Undecided++
		case !listed:
			c.report(Divergence{DivergenceExtra, key, 0, has})
		case is == has:
		case is == 0 || has == 0: // not a number, or not readable
			c.result.Undecided++
		case has < is && is > copiedAt, has > is && has > listedAt:
			c.result.Undecided++
		case has < is:
			c.report(Divergence{DivergenceStale, key, is, has})
		default:
			c.report(Divergence{DivergenceAhead, key, is, has})
		}
		if listed {
			c.listed[key] |= seen
		}
	}
	if found == len(c.listed) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.listed)) {
		is := c.listed[key]
		switch {
		case is&seen != 0:
		case is == 0, is > copiedAt, copiedAt > listedAt:
			c.result.Undecided++
		default:
			c.report(Divergence{DivergenceMissing, key, is, 0})
		}
	}
}

// seen marks the version of a listed object that the copy has. Versions of etcd have 63
// bits.
const seen = uint64(1) << 63

// report counts a divergence.
func (c *comparison) report(d Divergence) {
	c.result.Counts[d.Kind]++
	if len(c.result.Examples) < c.examples {
		c.result.Examples = append(c.result.Examples, d)
	}
}
