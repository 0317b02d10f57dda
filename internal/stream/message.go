// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"bufio"
	"io"
	"math"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/scan"
)

// endless is the length of a message that ends with its stream.
const endless = math.MaxUint64

// message reads the fields of a message while it arrives. It rejects what
// protobuf.Scanner rejects.
type message struct {
	r *bufio.Reader
	// left is the number of bytes of the message that have not been read yet.
	left uint64
	// field is the number of the current field.
	field int32
	// wire is the type of the current field.
	wire uint8
}

// newMessage returns a message of unknown length that r begins with.
func newMessage(r *bufio.Reader) message { return message{r: r, left: endless} }

// ReadFull reads the bytes before the message.
func (p *message) ReadFull(b []byte) (int, error) { return io.ReadFull(p.r, b) }

// Next moves to the next field. It returns io.EOF, not wrapped, at the end of the
// message.
func (p *message) Next() error {
	if p.left == 0 {
		return io.EOF
	}
	if p.left == endless {
		if _, err := p.r.Peek(1); err != nil {
			return err
		}
	}
	tag, err := p.uvarint()
	if err != nil {
		return err
	}
	p.field, p.wire = int32(tag>>3), uint8(tag&7)
	if p.field <= 0 || p.wire == protobuf.TypeGroupEnd {
		return scan.ErrProtobuf
	}
	return nil
}

func (p *message) uvarint() (uint64, error) {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if err := p.take(1); err != nil {
			return 0, err
		}
		c, err := p.r.ReadByte()
		if err != nil {
			return 0, unexpected(err)
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, nil
		}
	}
	return 0, scan.ErrProtobuf
}

// take counts n bytes as read.
func (p *message) take(n uint64) error {
	if p.left == endless {
		return nil
	}
	if n > p.left {
		return scan.ErrProtobuf
	}
	p.left -= n
	return nil
}

// Length returns the length of the field's value, which comes next.
func (p *message) Length() (uint64, error) {
	if p.wire != protobuf.TypeBytes {
		return 0, scan.ErrProtobuf
	}
	n, err := p.uvarint()
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64 {
		return 0, scan.ErrProtobuf
	}
	return n, p.take(n)
}

// Bytes returns the field's value, in a slice of its own.
func (p *message) Bytes() ([]byte, error) {
	n, err := p.Length()
	if err != nil {
		return nil, err
	}
	return readN(p.r, n)
}

// Skip moves past the field's value.
func (p *message) Skip() error {
	for depth, tag := 0, uint64(p.wire); ; {
		var n uint64
		var err error
		switch tag & 7 {
		case protobuf.TypeVarint:
			_, err = p.uvarint()
		case protobuf.TypeFixed64:
			n = 8
		case protobuf.TypeBytes:
			n, err = p.uvarint()
		case protobuf.TypeGroup:
			depth++
		case protobuf.TypeGroupEnd:
			depth--
		case protobuf.TypeFixed32:
			n = 4
		default:
			err = scan.ErrProtobuf
		}
		if err == nil {
			err = p.leap(n)
		}
		if err != nil || depth == 0 {
			return err
		}
		if tag, err = p.uvarint(); err != nil {
			return err
		}
	}
}

func (p *message) leap(n uint64) error {
	if n > math.MaxInt64 {
		return scan.ErrProtobuf
	}
	if err := p.take(n); err != nil {
		return err
	}
	for n > 0 {
		some := int(min(n, math.MaxInt32))
		if _, err := p.r.Discard(some); err != nil {
			return unexpected(err)
		}
		n -= uint64(some)
	}
	return nil
}
