// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import "sync"

// scratch is a buffer for bytes that are needed for a moment.
type scratch struct{ b []byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch { return scratches.Get().(*scratch) }

// free gives the buffer to the next one who needs it. There may be none.
func (s *scratch) free() {
	if s != nil && cap(s.b) <= 16*keep {
		scratches.Put(s)
	}
}
