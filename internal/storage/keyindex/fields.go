// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package keyindex

import (
	"encoding/binary"
	"errors"
	"time"
)

// errTruncated means that a payload ends before its fields do.
var errTruncated = errors.New("record is truncated")

// Fields reads the fields of which the payloads of frames and their indexes consist. After an
// error all further fields are empty.
type Fields struct {
	// B is what is left, and Err the first error.
	B   []byte
	Err error
}

// Number reads a number.
func (r *Fields) Number() uint64 {
	n, l := binary.Uvarint(r.B)
	if l <= 0 {
		r.B, r.Err = nil, errTruncated
		return 0
	}
	r.B = r.B[l:]
	return n
}

// Bytes reads n bytes.
func (r *Fields) Bytes(n uint64) []byte {
	if n > uint64(len(r.B)) {
		r.B, r.Err = nil, errTruncated
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}

// Text reads bytes after their number.
func (r *Fields) Text() []byte { return r.Bytes(r.Number()) }

// Byte reads one byte.
func (r *Fields) Byte() byte {
	if b := r.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Head reads the head of a batch or of a complete state.
func (r *Fields) Head() Head {
	return Head{Flags: r.Byte(), Version: r.Number(), Era: r.Number(), Time: time.Unix(0, int64(r.Number()))}
}

// AppendText appends the number of bytes of a text, and the text.
func AppendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
