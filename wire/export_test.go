// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"runtime"
	"unsafe"

	"github.com/watershed-project/watershed/internal/scan"
)

// WellFormedLabels reports whether the labels of an object can be read to their end.
func WellFormedLabels(o *Object) bool {
	return scan.EachLabel(o.Bytes(), o.encoding == JSON, func([]byte, []byte) {})
}

// Views returns the number of values that an object refers to, dead or alive.
func Views(o *Object) (n int) {
	for v := o.views.Load(); v != nil; v = v.next {
		n++
	}
	return n
}

// Train makes a dictionary from the samples that the packer has of an object's kind,
// without waiting for more.
func Train(p *Packer, o *Object) bool { return p.trainer(o).Train() }

// Dense reports whether an object is packed densely.
func Dense(o *Object) bool { return o.body.Load().Settled() }

// OnFreed calls f when the dictionary that an object is packed with is freed.
func OnFreed(o *Object, f func()) {
	runtime.AddCleanup(o.body.Load().How.Dictionary(), func(int) { f() }, 0)
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
func DataSize(o *Object) int { return len(o.body.Load().Data) }

// BufferOf returns the address of an object's stored bytes, without sharing them.
func BufferOf(o *Object) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(o.body.Load().Data)))
}
