// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package views holds the decoded values of one object. By default it does not keep them
// alive: readers find a value while another reader, or a cache, holds it. A cache keeps a
// value by [View.Keep].
package views

import (
	"sync/atomic"
	"weak"
)

// List has the values of an object, at most one of each type. The zero value is empty. All
// functions are safe for concurrent use, and none takes a lock.
//
// It costs 8 bytes, and 72 for each type that the object was decoded into.
type List struct{ first atomic.Pointer[node] }

// node is an element of a list. Nodes never change; a chain of them is replaced as a whole.
type node struct {
	view anyView
	next *node
}

// anyView is a View of any type.
type anyView interface {
	dead() bool
	Drop()
}

// Holder counts the values that are kept for it.
type Holder interface {
	// Hold adds a value and its size, or removes them if both are negative.
	Hold(values, bytes int)
}

// View is the place of an object's value of type P. It outlives the value, so that the next
// reader knows when the value was read.
type View[P any] struct {
	value weak.Pointer[P]
	// kept keeps the value alive. It is nil if nothing does.
	kept atomic.Pointer[P]
	// place says who counts the value. It is written once, before kept.
	place atomic.Pointer[place]
	// Read is when the value was read: what that means is up to the cache. 0 is never.
	Read atomic.Uint32
}

// place is the first holder of a value and its size for it.
type place struct {
	by   Holder
	size int
}

// Find returns the view of type P, nil if there is none.
func Find[P any](l *List) *View[P] { return find[P](l.first.Load()) }

func find[P any](n *node) *View[P] {
	for ; n != nil; n = n.next {
		if v, ok := n.view.(*View[P]); ok {
			return v
		}
	}
	return nil
}

// Share makes p the value of its type, unless there already is one. It returns the shared
// value and its view.
func Share[P any](l *List, p *P) (*P, *View[P]) {
	v := &View[P]{value: weak.Make(p)}
	for {
		old := l.first.Load()
		if before := find[P](old); before != nil {
			if first := before.Value(); first != nil {
				return first, before
			}
			v.Read.Store(before.Read.Load())
		}
		chain := &node{view: v}
		for n := old; n != nil; n = n.next {
			if !n.view.dead() {
				chain.next = &node{view: n.view, next: chain.next}
			}
		}
		if l.first.CompareAndSwap(old, chain) {
			return p, v
		}
	}
}

// Drop stops keeping the values alive.
func (l *List) Drop() {
	for n := l.first.Load(); n != nil; n = n.next {
		n.view.Drop()
	}
}

// Value returns the value, nil if nobody holds it any more.
func (v *View[P]) Value() *P {
	if p := v.Kept(); p != nil {
		return p
	}
	return v.value.Value()
}

func (v *View[P]) dead() bool { return v.Value() == nil }

// Kept returns the value if it is kept, else nil.
func (v *View[P]) Kept() *P { return v.kept.Load() }

// Keep keeps p, the value of the view, alive until Drop. It reports whether it was not kept
// before. The holder of the first call counts it, with that size: several informers may have the
// same object.
func (v *View[P]) Keep(p *P, size int, by Holder) bool {
	if v.place.Load() == nil {
		v.place.CompareAndSwap(nil, &place{by: by, size: size})
	}
	if !v.kept.CompareAndSwap(nil, p) {
		return false
	}
	first := v.place.Load()
	first.by.Hold(1, first.size)
	return true
}

// Drop stops keeping the value alive. Readers that have it can continue to use it.
func (v *View[P]) Drop() {
	if v.kept.Swap(nil) != nil {
		first := v.place.Load()
		first.by.Hold(-1, -first.size)
	}
}

// Sweep drops a kept value that no reader has marked with the epoch or the one before it. It
// reports whether the value is kept.
func (v *View[P]) Sweep(epoch uint32) bool {
	if v.kept.Load() == nil {
		return false
	}
	if epoch-v.Read.Load() <= 1 {
		return true
	}
	v.Read.Store(0)
	v.Drop()
	return false
}
