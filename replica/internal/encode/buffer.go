// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import "sync"

// PieceBytes is how many bytes of a packed block are unpacked at a time to be sent: what a slow
// client keeps of it in memory. Of a block that is not packed, it keeps the whole.
const PieceBytes = 64 << 10

// maxBuffer is the capacity above which a buffer is not kept for reuse.
const maxBuffer = 4 << 20

var (
	// pieces holds bytes of a block while they are sent.
	pieces = sync.Pool{New: func() any { return new([PieceBytes]byte) }}
	// buffers hold bytes while they are made.
	buffers = sync.Pool{New: func() any { return new([]byte) }}
)

// GetPiece returns a buffer for bytes that are about to be sent. The caller returns it with
// [PutPiece].
func GetPiece() *[PieceBytes]byte { return pieces.Get().(*[PieceBytes]byte) }

// PutPiece takes back a buffer of [GetPiece].
func PutPiece(p *[PieceBytes]byte) { pieces.Put(p) }

// GetBuffer returns an empty buffer that may grow. The caller returns it with [PutBuffer].
func GetBuffer() *[]byte { return buffers.Get().(*[]byte) }

// PutBuffer takes back a buffer of [GetBuffer], unless it has become too large to keep.
func PutBuffer(b *[]byte) {
	if cap(*b) <= maxBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}
