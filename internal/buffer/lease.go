// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package buffer

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
)

// Most bytes that arrive are packed a moment later. To leave each of them to the garbage
// collector would be a fifth of all garbage of a typed informer, so the buffers are used
// again for the next objects. A lease makes sure that nothing reads a buffer any more.

// Lease records whether the buffer of an object's bytes can be used again after the object has
// been packed: 0 if it is kept, -1 if it was recycled, and otherwise 1 more than the
// number of its readers. All methods are safe for concurrent use.
type Lease struct{ n atomic.Int32 }

// Begin allows to recycle the buffer. The object must be new, and the only reference to
// the buffer.
func (l *Lease) Begin() { l.n.Store(1) }

// End keeps the buffer for good, because the caller is going to share it. It has no effect
// on one that was recycled.
func (l *Lease) End() {
	for n := l.n.Load(); n > 0; n = l.n.Load() {
		if l.n.CompareAndSwap(n, 0) {
			return
		}
	}
}

// Take adds a reader, which must call Release. It returns false if the buffer is kept
// without that, or was recycled.
func (l *Lease) Take() bool {
	for n := l.n.Load(); n > 0; n = l.n.Load() {
		if l.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// Release removes a reader. It does nothing on nil.
func (l *Lease) Release() {
	if l == nil {
		return
	}
	for n := l.n.Load(); n > 1; n = l.n.Load() {
		if l.n.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// Recycle uses the buffer of a body again that the object no longer has, unless there are
// readers.
func (l *Lease) Recycle(b []byte) {
	if cap(b) > Keep || !l.n.CompareAndSwap(1, -1) {
		return
	}
	if invariants {
		for i := range b {
			b[i] = 0xdb // a reader of it must fail
		}
	}
	buffers.Put(&Scratch{B: b})
}

// buffers has recycled buffers. The garbage collector frees those that are not used.
var buffers sync.Pool // of *Scratch

// New returns a slice of n bytes with any content, for the bytes of an object. Its
// capacity is at most a fifth greater, which is about how far the allocator rounds up.
func New(n int) []byte {
	if b := usedBuffer(n); b != nil {
		return b
	}
	return slices.Grow([]byte{}, n)[:n]
}

// Copy returns a copy of b in a new buffer.
func Copy(b []byte) []byte {
	if c := usedBuffer(len(b)); c != nil {
		copy(c, b)
		return c
	}
	return bytes.Clone(b) // does not clear the memory first
}

// usedBuffer returns a recycled buffer of n bytes, nil if there is none.
func usedBuffer(n int) []byte {
	if n < smallest {
		return nil
	}
	if s, ok := buffers.Get().(*Scratch); ok && n <= cap(s.B) && cap(s.B)-n <= n/5 {
		return s.B[:n]
	}
	return nil
}
