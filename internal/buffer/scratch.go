// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package buffer

import "sync"

// Scratch is a buffer for temporary data.
type Scratch struct{ B []byte }

var scratches = sync.Pool{New: func() any { return new(Scratch) }}

// NewScratch returns a buffer with any content, which the caller frees.
func NewScratch() *Scratch { return scratches.Get().(*Scratch) }

// Free returns the buffer for reuse. It does nothing on nil.
func (s *Scratch) Free() {
	if s != nil && cap(s.B) <= 16*Keep {
		scratches.Put(s)
	}
}
