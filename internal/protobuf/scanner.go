// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package protobuf

// The wire types.
const (
	TypeVarint   = 0
	TypeFixed64  = 1
	TypeBytes    = 2
	TypeGroup    = 3
	TypeGroupEnd = 4
	TypeFixed32  = 5
)

// Scanner walks the fields of one message:
//
//	p := protobuf.Scanner{Data: message}
//	for p.Next() {
//		if p.Field == 1 {
//			name = p.Bytes()
//		}
//	}
//	if p.Bad {
//		return errProtobuf
//	}
//
// At the first fault it becomes Bad and finds no further fields.
type Scanner struct {
	// Data is the message.
	Data []byte
	// At is the offset in Data at which the current field ends and the next begins.
	At int
	// Value is the value of the last field of type TypeBytes.
	Value []byte
	// Number is the value of the last field of type TypeVarint.
	Number uint64
	// Field is the number of the current field.
	Field int32
	// Type is the wire type of the current field.
	Type uint8
	// Bad is set when the message is malformed. The caller may set it too, to end the
	// walk.
	Bad bool
}

// Next moves to the next field. It returns false at the end of the message and at a
// fault.
func (p *Scanner) Next() bool {
	b, at := p.Data, p.At
	if at >= len(b) || p.Bad {
		return false
	}
	tag := uint64(b[at])
	at++
	if tag >= 0x80 {
		tag, at = uvarint(b, at-1)
	}
	p.Field, p.Type = int32(tag>>3), uint8(tag&7)
	if p.Field <= 0 || p.Type == TypeGroupEnd {
		p.Bad = true
		return false
	}
	switch {
	case p.Type == TypeBytes && at < len(b):
		n := uint64(b[at])
		at++
		if n >= 0x80 {
			n, at = uvarint(b, at-1)
		}
		if at > len(b) || n > uint64(len(b)-at) {
			p.Bad = true
			return false
		}
		p.Value = b[at : at+int(n)]
		at += int(n)
	case p.Type == TypeVarint:
		p.Number, at = uvarint(b, at)
	default:
		at = skip(b, at, tag)
	}
	p.At = at
	p.Bad = at > len(b)
	return !p.Bad
}

// Bytes returns the value of the current field, which must be bytes, a string or a
// message. Otherwise the scanner becomes Bad.
func (p *Scanner) Bytes() []byte {
	if p.Type != TypeBytes {
		p.Bad = true
		return nil
	}
	return p.Value
}

// Varint returns the value of the current field, which must be an integer or a
// boolean. Otherwise the scanner becomes Bad.
func (p *Scanner) Varint() uint64 {
	if p.Type != TypeVarint {
		p.Bad = true
		return 0
	}
	return p.Number
}

// uvarint returns the number at an offset and the offset at which it ends. That is
// beyond b if the number is malformed.
func uvarint(b []byte, at int) (uint64, int) {
	var v uint64
	for shift := uint(0); shift < 64 && at < len(b); shift += 7 {
		c := b[at]
		at++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, at
		}
	}
	return 0, len(b) + 1
}

// skip returns the offset at which the value of a field with this tag ends. That is
// beyond b if the value is malformed.
func skip(b []byte, at int, tag uint64) int {
	for depth := 0; ; {
		n := uint64(0)
		switch tag & 7 {
		case TypeVarint:
			_, at = uvarint(b, at)
		case TypeFixed64:
			n = 8
		case TypeBytes:
			n, at = uvarint(b, at)
		case TypeGroup:
			depth++
		case TypeGroupEnd:
			depth--
		case TypeFixed32:
			n = 4
		default:
			return len(b) + 1
		}
		if at > len(b) || n > uint64(len(b)-at) {
			return len(b) + 1
		}
		at += int(n)
		if depth == 0 {
			return at
		}
		if tag, at = uvarint(b, at); at > len(b) {
			return at
		}
	}
}
