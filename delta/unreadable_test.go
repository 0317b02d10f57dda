// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestDeleteKey_hasTheLastStateKnown(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{
		Known:   known{"pod1": {"pod1", 1}, "pod2": {"pod2", 9}},
		Version: func(p pod) uint64 { return uint64(p.Value) },
	})
	expect.NoError(t, f.Add(ctx, pod{"pod3", 2}))
	expect.NoError(t, f.DeleteKey(ctx, "pod1", 5))
	expect.NoError(t, f.DeleteKey(ctx, "pod2", 5)) // it was created again since
	expect.NoError(t, f.DeleteKey(ctx, "pod3", 0))
	expect.NoError(t, f.DeleteKey(ctx, "pod9", 5)) // it is not known
	expect.Equal(t, drained(t, f), []string{"Added pod3=2, Deleted pod1=1 (missed), Deleted pod3=2 (missed)"})
}

func TestRelist_ofAnObjectWithoutAReadableKeyInfersNothing(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	r, err := f.Relist(ctx)
	expect.NoError(t, err)
	defer r.Close()
	expect.NoError(t, r.Add(ctx, pod{"pod2", 2}))
	r.KeepAll()
	expect.NoError(t, r.Commit(ctx, 4))
	expect.Equal(t, drained(t, f), []string{"initial: Replaced pod2=2, Bookmark 4"})
}

func TestRelist_objectDeletedUnreadablyWhileListing(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	r, err := f.Relist(ctx)
	expect.NoError(t, err)
	defer r.Close()
	expect.NoError(t, r.Add(ctx, pod{"pod1", 2}))
	expect.NoError(t, r.Add(ctx, pod{"pod2", 2}))
	r.Forget("pod1")
	expect.NoError(t, r.Commit(ctx, 4))
	expect.Equal(t, drained(t, f), []string{
		"initial: Replaced pod1=2, Replaced pod2=2, Deleted pod1=2 (missed), Bookmark 4",
	})
}
