// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
)

// Most bytes that arrive are packed a moment later. To leave each of them to the garbage
// collector would be a fifth of all garbage of a typed informer, so the buffers are used
// again for the next objects. A lease makes sure that nothing reads a buffer any more.

// lease is whether the buffer of an object's bytes can be used again after the object has
// been packed: 0 if it is kept, -1 if it was recycled, and otherwise 1 more than the
// number of its readers. All methods are safe for concurrent use.
type lease struct{ n atomic.Int32 }

// begin allows to recycle the buffer. The object must be new, and the only reference to
// the buffer.
func (l *lease) begin() { l.n.Store(1) }

// end keeps the buffer for good, because the caller is going to share it. It has no effect
// on one that was recycled.
func (l *lease) end() {
	for n := l.n.Load(); n > 0; n = l.n.Load() {
		if l.n.CompareAndSwap(n, 0) {
			return
		}
	}
}

// take adds a reader, which must call release. It returns false if the buffer is kept
// without that, or was recycled.
func (l *lease) take() bool {
	for n := l.n.Load(); n > 0; n = l.n.Load() {
		if l.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// release removes a reader. It does nothing on nil.
func (l *lease) release() {
	if l == nil {
		return
	}
	for n := l.n.Load(); n > 1; n = l.n.Load() {
		if l.n.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// recycle uses the buffer of a body again that the object no longer has, unless there are
// readers.
func (l *lease) recycle(b []byte) {
	if cap(b) > keep || !l.n.CompareAndSwap(1, -1) {
		return
	}
	if invariants {
		for i := range b {
			b[i] = 0xdb // a reader of it must fail
		}
	}
	buffers.Put(&scratch{b: b})
}

// buffers has recycled buffers. The garbage collector frees those that are not used.
var buffers sync.Pool // of *scratch

// newBuffer returns a slice of n bytes with any content, for the bytes of an object. Its
// capacity is at most a fifth greater, which is about how far the allocator rounds up.
func newBuffer(n int) []byte {
	if b := usedBuffer(n); b != nil {
		return b
	}
	return slices.Grow([]byte{}, n)[:n]
}

// newCopy returns a copy of b in a new buffer.
func newCopy(b []byte) []byte {
	if c := usedBuffer(len(b)); c != nil {
		copy(c, b)
		return c
	}
	return bytes.Clone(b) // does not clear the memory first
}

// usedBuffer returns a recycled buffer of n bytes, nil if there is none.
func usedBuffer(n int) []byte {
	if n < worthPacking {
		return nil
	}
	if s, ok := buffers.Get().(*scratch); ok && n <= cap(s.b) && cap(s.b)-n <= n/5 {
		return s.b[:n]
	}
	return nil
}
