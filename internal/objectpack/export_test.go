// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack

import (
	"runtime"
	"unsafe"

	"github.com/watershed-project/watershed/wire"
)

// Train makes a dictionary from the samples that the packer has of an object's kind,
// without waiting for more.
func Train(p *Packer, o *wire.Object) bool { return p.trainer(o).Train() }

// Dense reports whether an object is packed densely.
func Dense(o *wire.Object) bool { return o.Cell().Body.Load().Settled() }

// OnFreed calls f when the dictionary that an object is packed with is freed.
func OnFreed(o *wire.Object, f func()) {
	runtime.AddCleanup(o.Cell().Body.Load().How.Dictionary(), func(int) { f() }, 0)
}

// DataSize returns the bytes of an object's stored form, without the base of a difference.
func DataSize(o *wire.Object) int { return len(o.Cell().Body.Load().Data) }

// BufferOf returns the address of an object's stored bytes, without sharing them.
func BufferOf(o *wire.Object) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(o.Cell().Body.Load().Data)))
}
