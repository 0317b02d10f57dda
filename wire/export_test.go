// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import "runtime"

// KindOf is the very Kind an object has.
func KindOf(o *Object) *Kind { return o.kind }

// Meta and Owner are the metadata that is scanned from an object.
type (
	Meta  = metadata
	Owner = owner
)

// MetaOf scans the metadata of an object.
func MetaOf(o *Object) (Meta, error) { return o.metadata() }

// Views is how many values an object remembers, dead or alive.
func Views(o *Object) (n int) {
	for v := o.views.Load(); v != nil; v = v.next {
		n++
	}
	return n
}

// Train makes a dictionary of what the packer has seen of an object's kind, without
// waiting for more.
func Train(p *Packer, o *Object) bool {
	s := p.kindPacker(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trainLocked()
	return s.dict.Load() != nil
}

// Dense reports whether an object is packed densely.
func Dense(o *Object) bool {
	b := o.body.Load()
	return b.dict != nil && dense(b.data)
}

// OnFreed calls f when the dictionary that an object is packed with is freed.
func OnFreed(o *Object, f func()) {
	runtime.AddCleanup(o.body.Load().dict, func(int) { f() }, 0)
}

// Live is how many of the values an object was decoded into are alive.
func Live(o *Object) (n int) {
	for v := o.views.Load(); v != nil; v = v.next {
		if !v.ref.dead() {
			n++
		}
	}
	return n
}
