// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package views

// Pinned is embedded in types whose values an object keeps for as long as it exists, unlike
// decoded values. A list has at most one of each type. It costs 24 bytes besides the value.
type Pinned struct{}

func (Pinned) dead() bool { return false }

// Drop does nothing.
func (Pinned) Drop() {}

// Pin makes a value the list's. It replaces one of the same type.
func Pin[R anyView](l *List, r R) {
	for {
		old := l.first.Load()
		chain := &node{view: r, next: old}
		if _, ok := PinnedOf[R](l); ok {
			chain.next = nil
			for n := old; n != nil; n = n.next {
				if _, same := n.view.(R); !same {
					chain.next = &node{view: n.view, next: chain.next}
				}
			}
		}
		if l.first.CompareAndSwap(old, chain) {
			return
		}
	}
}

// PinnedOf returns the pinned value of type R, and false if there is none.
func PinnedOf[R anyView](l *List) (r R, ok bool) {
	for n := l.first.Load(); n != nil; n = n.next {
		if r, ok = n.view.(R); ok {
			return r, true
		}
	}
	return r, false
}
