// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package views_test

import (
	"runtime"
	"testing"

	"github.com/watershed-project/watershed/internal/views"
)

// first and second are two types of values. They have pointers, so that they are freed one by one.
type (
	first  struct{ _ *string }
	second struct{ _ *string }
)

// holder sums what it is told.
type holder struct{ values, bytes int }

func (h *holder) Hold(values, bytes int) { h.values, h.bytes = h.values+values, h.bytes+bytes }

func TestList_hasOneViewOfEachType(t *testing.T) {
	var l views.List
	for n := range uint32(3) {
		p, v := views.Share(&l, &first{})
		if other, _ := views.Share(&l, &first{}); other != p || l.Len() != 1 {
			t.Fatalf("%p beside %p, and %d views", other, p, l.Len())
		}
		if v.Read.Load() != n {
			t.Errorf("the view was read at %d, want what was recorded in the one before, %d", v.Read.Load(), n)
		}
		v.Read.Store(n + 1)
		runtime.KeepAlive(p)
		for v.Value() != nil {
			runtime.GC()
		}
	}
	views.Share(&l, &second{})
	if l.Len() != 1 {
		t.Errorf("%d views, want only that of the value that is alive", l.Len())
	}
}

func TestView_isKeptUntilItIsDropped(t *testing.T) {
	var l views.List
	var h, other holder
	p, v := views.Share(&l, &first{})
	if !v.Keep(p, 10, &h) || v.Keep(p, 20, &other) {
		t.Error("the value was kept before, or not afterwards")
	}
	runtime.GC()
	runtime.GC()
	if views.Find[first](&l).Value() == nil || h != (holder{1, 10}) {
		t.Errorf("the value is gone, or counted as %+v", h)
	}
	l.Drop()
	l.Drop()
	if h != (holder{}) || other != (holder{}) {
		t.Errorf("the values of the holders are %+v and %+v, want none", h, other)
	}
	for v.Value() != nil {
		runtime.GC()
	}
}

func TestView_sweepDropsWhatTwoEpochsHaveNotSeen(t *testing.T) {
	var l views.List
	var h holder
	p, v := views.Share(&l, &first{})
	v.Keep(p, 10, &h)
	v.Read.Store(5)
	for _, epoch := range []uint32{5, 6} {
		if !v.Sweep(epoch) {
			t.Errorf("a value that was read in epoch 5 is dropped in %d", epoch)
		}
	}
	if v.Sweep(7) || v.Kept() != nil || h.values != 0 || v.Read.Load() != 0 {
		t.Errorf("a value that was read in epoch 5 is kept in 7: %+v", h)
	}
}
