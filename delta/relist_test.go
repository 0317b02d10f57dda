// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestRelist_keepsTheKeyThatATransformChanges: the key is that of the object as it arrived,
// in a second list as in the first.
func TestRelist_keepsTheKeyThatATransformChanges(t *testing.T) {
	k := known{}
	f := delta.New(podKey, &delta.Options[pod]{Known: k, Same: samePod, Transform: func(p pod) (pod, error) {
		return pod{Name: "new-" + p.Name, Value: p.Value}, nil
	}})
	for _, want := range [][]string{
		{"initial: Replaced poda=1, Replaced podb=1, Bookmark 5"},
		{"Bookmark 5"}, // nothing has changed
	} {
		expect.NoError(t, f.Replace(t.Context(), []pod{podOf(0, 1), podOf(1, 1)}, 5))
		var got []string
		expect.NoError(t, f.Drain(t.Context(), func(ds delta.Deltas[pod], initial bool) error {
			text := show(ds)
			if initial {
				text = "initial: " + text
			}
			got = append(got, text)
			k.apply(ds)
			return nil
		}))
		expect.Equal(t, got, want)
	}
}

// TestRelist_infersTheDeletionOfWhatBecameKnownMeanwhile: the consumer has received an
// object from elsewhere during the first list.
func TestRelist_infersTheDeletionOfWhatBecameKnownMeanwhile(t *testing.T) {
	ctx := t.Context()
	k := known{}
	f := delta.New(podKey, &delta.Options[pod]{Known: k})
	r, err := f.Relist(ctx)
	expect.NoError(t, err)
	defer r.Close()
	expect.NoError(t, r.Add(ctx, podOf(0, 1)))
	k["podz"] = pod{"podz", 1}
	expect.NoError(t, r.Commit(ctx, 4))
	expect.Equal(t, drained(t, f), []string{"initial: Replaced poda=1, Deleted podz=1 (missed), Bookmark 4"})
}

// TestRelist_marksItsDeltas, and only those.
func TestRelist_marksItsDeltas(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{
		Known: known{"poda": podOf(0, 1), "podb": podOf(1, 1), "podc": podOf(2, 1)},
	})
	expect.NoError(t, f.Update(ctx, podOf(0, 2)))
	expect.NoError(t, f.DeleteKey(ctx, "podb", 0))
	expect.NoError(t, f.Bookmark(ctx, 3))
	r, err := f.Relist(ctx)
	expect.NoError(t, err)
	expect.NoError(t, r.Add(ctx, podOf(3, 4)))
	expect.NoError(t, r.Delete(ctx, podOf(3, 5)))
	expect.NoError(t, r.Commit(ctx, 6))
	r.Close()
	expect.NoError(t, f.Add(ctx, podOf(4, 7)))
	var listed, others delta.Deltas[pod]
	expect.NoError(t, f.Drain(ctx, func(ds delta.Deltas[pod], _ bool) error {
		for _, d := range ds {
			if d.Listed {
				listed = append(listed, d)
			} else {
				others = append(others, d)
			}
		}
		return nil
	}))
	expect.Equal(t, show(listed),
		"Replaced podd=4, Deleted podd=5, Deleted poda=2 (missed), Deleted podc=1 (missed), Bookmark 6")
	expect.Equal(t, show(others), "Updated poda=2, Deleted podb=1 (missed), Bookmark 3, Added pode=7")
}
