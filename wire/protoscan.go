// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

// Wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireGroup   = 3
	wireGroupUp = 4
	wireFixed32 = 5
)

// protoScan walks the fields of one message. It takes and refuses what the
// generated code of Kubernetes takes and refuses, so that both always read the
// same. At the first fault it is bad and finds nothing more.
type protoScan struct {
	b     []byte
	at    int
	value []byte
	num   uint64
	field int32
	wire  uint8
	bad   bool
}

// next goes to the next field.
func (p *protoScan) next() bool {
	b, at := p.b, p.at
	if at >= len(b) || p.bad {
		return false
	}
	tag := uint64(b[at])
	if at++; tag >= 0x80 {
		tag, at = uvarint(b, at-1)
	}
	p.field, p.wire = int32(tag>>3), uint8(tag&7)
	if p.field <= 0 || p.wire == wireGroupUp {
		p.bad = true
		return false
	}
	switch {
	case p.wire == wireBytes && at < len(b):
		n := uint64(b[at])
		if at++; n >= 0x80 {
			n, at = uvarint(b, at-1)
		}
		if at > len(b) || n > uint64(len(b)-at) {
			p.bad = true
			return false
		}
		p.value = b[at : at+int(n)]
		at += int(n)
	case p.wire == wireVarint:
		p.num, at = uvarint(b, at)
	default:
		at = skipField(b, at, tag)
	}
	p.at = at
	p.bad = at > len(b)
	return !p.bad
}

// bytes is the field's value as bytes, a string or a message.
func (p *protoScan) bytes() []byte {
	if p.wire != wireBytes {
		p.bad = true
		return nil
	}
	return p.value
}

// varint is the field's value as a number.
func (p *protoScan) varint() uint64 {
	if p.wire != wireVarint {
		p.bad = true
		return 0
	}
	return p.num
}

// uvarint is the number at at and where it ends, beyond b if it does not.
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

// skipField is where the value of a field with this tag ends, beyond b if it does
// not.
func skipField(b []byte, at int, tag uint64) int {
	for depth := 0; ; {
		n := uint64(0)
		switch tag & 7 {
		case wireVarint:
			_, at = uvarint(b, at)
		case wireFixed64:
			n = 8
		case wireBytes:
			n, at = uvarint(b, at)
		case wireGroup:
			depth++
		case wireGroupUp:
			depth--
		case wireFixed32:
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
