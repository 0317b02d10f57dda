// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/wire"
)

// TestChanged_dependsOnItsClustersOnly changes one of two clusters: the reader of the other
// one sees no trace of that, and can resume after the log has dropped everything else.
func TestChanged_dependsOnItsClustersOnly(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	view := OfResource[*wire.Object](w.fleet, w.c.Resource())
	none := view.In("eu").Changed()
	w.join("us", "a")
	if view.In("eu").Changed() != none {
		t.Error("a cluster that joins changes another one")
	}
	w.join("eu", "a")
	eu := view.In("eu")
	joined := eu.Changed()
	if joined <= none {
		t.Errorf("the cluster joined at %d, before it was at %d", joined, none)
	}
	w.put("us", "b")
	w.delete("us", "a")
	w.c.Log().Trim(0)
	w.join("za", "a")
	if s := eu.Snapshot(); s.Changed() != joined || eu.Changed() != joined || s.Revision() <= joined {
		t.Errorf("other clusters change it: %d and %d, was %d, the revision is %d", s.Changed(), eu.Changed(), joined,
			s.Revision())
	}
	if all := view.Snapshot(); all.Changed() != all.Revision() || view.Changed() != all.Revision() {
		t.Errorf("all clusters changed at %d, their revision is %d", all.Changed(), all.Revision())
	}
	f, err := eu.FollowAfter(joined, false)
	if err != nil {
		t.Fatalf("after its last change: %v", err)
	}
	w.put("eu", "b")
	changed := eu.Changed()
	for c := range must(f.TryNext()) {
		if c.Key.Object != "n/b" || c.Revision != changed {
			t.Errorf("the change is %v at %d, want n/b at %d", c.Key, c.Revision, changed)
		}
	}
	w.leave("us")
	if eu.Changed() != changed {
		t.Error("a cluster that leaves changes another one")
	}
	w.leave("eu")
	if eu.Changed() <= changed {
		t.Error("its own leaving is not a change")
	}
}

// TestReserve_isBetweenChanges follows a view from reserved revisions, with and without
// changes before and after them.
func TestReserve_isBetweenChanges(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	w.join("eu", "a")
	w.join("us", "a")
	all := OfResource[*wire.Object](w.fleet, w.c.Resource())
	for _, view := range []*View[*wire.Object]{all, all.In("eu")} {
		before := view.Changed()
		reserved := view.Reserve()
		if view.Changed() != before || view.Snapshot().Revision() >= reserved || reserved <= before {
			t.Errorf("reserved %d after %d, the state changed at %d", reserved, before, view.Changed())
		}
		if err := view.Recognize(reserved); err != nil {
			t.Error(err)
		}
		early, err := view.FollowAfter(reserved, true)
		if err != nil {
			t.Fatalf("before the next change: %v", err)
		}
		name := fmt.Sprint("b", reserved)
		w.put("eu", name)
		if view.Changed() <= reserved {
			t.Errorf("the next change is at %d, reserved was %d", view.Changed(), reserved)
		}
		late, err := view.FollowAfter(reserved, true)
		if err != nil {
			t.Fatalf("after the next change: %v", err)
		}
		for _, f := range []*Follower[*wire.Object]{early, late} {
			n := 0
			for c := range must(f.TryNext()) {
				if n++; c.Key != (Key{"eu", "n/" + name}) {
					t.Errorf("the change is %v", c.Key)
				}
			}
			if n != 1 {
				t.Errorf("%d changes", n)
			}
		}
		time.Sleep(time.Millisecond) // the change must be older than now to be trimmed
		w.c.Log().Trim(0)
		w.c.Log().Cut(w.c.Newest(nil).Revision())
		if _, err := view.FollowAfter(reserved, true); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("after the change has left the log: %v", err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
