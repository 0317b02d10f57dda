// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package buffer recycles the memory that the bytes of objects pass through: a [Lease]
// lets the buffer of an object that has been packed be used for the next object, and a
// [Scratch] holds temporary data. It does not know what the bytes are.
package buffer

import "fmt"

const (
	// MaxObject is the maximum size in bytes of one object or one frame of a watch. An
	// API server accepts requests of at most 3 MiB, and etcd stores at most 1.5 MiB unless
	// it is configured otherwise.
	MaxObject = 32 << 20
	// Keep is the number of bytes of buffer that an idle stream keeps, and the size in
	// bytes up to which the buffer of an object is recycled.
	Keep = 64 << 10
	// smallest is the size in bytes below which no buffer is looked for: such objects are
	// not packed, so their buffers do not come back.
	smallest = 256
)

// ErrTooLarge is returned for an object or a frame of more than [MaxObject] bytes.
var ErrTooLarge = fmt.Errorf("larger than %d MiB", MaxObject>>20)
