// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"testing"

	"github.com/watershed-project/watershed/delta"
)

func TestDeleteKey_hasTheLastStateKnown(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{
		Known:   known{"pod1": {"pod1", 1}, "pod2": {"pod2", 9}},
		Version: func(p pod) uint64 { return uint64(p.Value) },
	})
	must(t, f.Add(ctx, pod{"pod3", 2}))
	must(t, f.DeleteKey(ctx, "pod1", 5))
	must(t, f.DeleteKey(ctx, "pod2", 5)) // it has been made anew since
	must(t, f.DeleteKey(ctx, "pod3", 0))
	must(t, f.DeleteKey(ctx, "pod9", 5)) // it is not known
	wantEqual(t, drained(t, f), []string{"Added pod3=2, Deleted pod1=1 (missed), Deleted pod3=2 (missed)"})
}

func TestRelist_ofAnObjectWithoutAReadableKeyInfersNothing(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	r, err := f.Relist(ctx)
	must(t, err)
	defer r.Close()
	must(t, r.Add(ctx, pod{"pod2", 2}))
	r.KeepAll()
	must(t, r.Commit(ctx, 4))
	wantEqual(t, drained(t, f), []string{"initial: Replaced pod2=2, Bookmark 4"})
}

func TestRelist_objectDeletedUnreadablyWhileListing(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	r, err := f.Relist(ctx)
	must(t, err)
	defer r.Close()
	must(t, r.Add(ctx, pod{"pod1", 2}))
	must(t, r.Add(ctx, pod{"pod2", 2}))
	r.Forget("pod1")
	must(t, r.Commit(ctx, 4))
	wantEqual(t, drained(t, f), []string{"initial: Replaced pod1=2, Replaced pod2=2, Deleted pod1=2 (missed), Bookmark 4"})
}
