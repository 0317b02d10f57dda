// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import "sync"

// scratch is a buffer for temporary data.
type scratch struct{ b []byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch { return scratches.Get().(*scratch) }

// free returns the buffer for reuse. It does nothing on nil.
func (s *scratch) free() {
	if s != nil && cap(s.b) <= 16*keep {
		scratches.Put(s)
	}
}
