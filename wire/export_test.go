// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"runtime"
	"unsafe"
)

// KindOf returns the Kind of an object, as a pointer to compare.
func KindOf(o *Object) *Kind { return o.kind }

// Meta and Owner export the metadata that is scanned from an object.
type (
	Meta  = metadata
	Owner = owner
)

// MetaOf scans the metadata of an object.
func MetaOf(o *Object) (Meta, error) { return o.metadata() }

// Views returns the number of values that an object refers to, dead or alive.
func Views(o *Object) (n int) {
	for v := o.views.Load(); v != nil; v = v.next {
		n++
	}
	return n
}

// Train makes a dictionary from the samples that the packer has of an object's kind,
// without waiting for more.
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
	return b.how != nil && b.how.settled(b.data)
}

// OnFreed calls f when the dictionary that an object is packed with is freed.
func OnFreed(o *Object, f func()) {
	runtime.AddCleanup(o.body.Load().how.dict, func(int) { f() }, 0)
}

// Live returns the number of an object's decoded values that are alive.
func Live(o *Object) (n int) {
	for v := o.views.Load(); v != nil; v = v.next {
		if !v.ref.dead() {
			n++
		}
	}
	return n
}

// DataSize returns the bytes of an object's stored form, without the base of a difference.
func DataSize(o *Object) int { return len(o.body.Load().data) }

// BufferOf returns the address of an object's stored bytes, without sharing them.
func BufferOf(o *Object) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(o.body.Load().data)))
}
