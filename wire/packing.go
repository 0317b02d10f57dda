// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"encoding/binary"
	"fmt"
)

// body is the stored form of an object's bytes: as they are, or packed. It never changes.
type body struct {
	data []byte
	// how is how the data is packed, nil if it is not.
	how *packing
}

// packing is how data is packed: with a dictionary, or as a difference from other packed
// data. Bodies share it. It lives as long as a body needs it.
type packing struct {
	dict *dictionary
	// base is the data that the difference is from, packed with the dictionary; nil if
	// there is none.
	base []byte
}

// packingSize is the size of a [packing] in bytes.
const packingSize = 32

// packedDifference is the first byte of data that is a difference. After it are the
// length of the unpacked bytes as a varint, and the difference with squeezed digits.
const packedDifference byte = 'd'

// unpack writes the unpacked data into dst, or into a new slice if dst is too small.
func (p *packing) unpack(dst, data []byte) []byte {
	raw, err := p.decode(dst, data)
	if err != nil {
		// It was unpacked when it was packed, and nothing has changed it since.
		panic(fmt.Sprintf("wire: packed object is damaged: %v", err))
	}
	return raw
}

func (p *packing) decode(dst, data []byte) ([]byte, error) {
	if p.base == nil {
		return p.dict.decode(dst, data)
	}
	base := newScratch()
	defer base.free()
	var err error
	if base.b, err = p.dict.decode(base.b, p.base); err != nil {
		return nil, err
	}
	return patched(dst, base.b, data)
}

// patched unpacks a difference from the unpacked base.
func patched(dst, base, data []byte) ([]byte, error) {
	n, l := binary.Uvarint(data[1:])
	if l <= 0 || n > maxObject {
		return nil, errDifference
	}
	s := newScratch()
	defer s.free()
	var err error
	if s.b, err = appendExpanded(s.b[:0], data[1+l:]); err != nil {
		return nil, err
	}
	if cap(dst) < int(n) {
		dst = make([]byte, 0, n)
	}
	return appendPatched(dst[:0], base, s.b, int(n))
}

// differ returns raw packed as a difference from p.base, nil if that takes more than most
// bytes.
func (p *packing) differ(raw []byte, most int) []byte {
	base, difference, squeezed := newScratch(), newScratch(), newScratch()
	defer base.free()
	defer difference.free()
	defer squeezed.free()
	var err error
	if base.b, err = p.dict.decode(base.b, p.base); err != nil {
		return nil
	}
	var ok bool
	// Squeezing digits saves half of the difference at most.
	if difference.b, ok = appendDifference(difference.b[:0], base.b, raw, 2*most); !ok {
		return nil
	}
	squeezed.b = binary.AppendUvarint(append(squeezed.b[:0], packedDifference), uint64(len(raw)))
	if squeezed.b = appendSqueezed(squeezed.b, difference.b); len(squeezed.b) > most {
		return nil
	}
	data := append(make([]byte, 0, len(squeezed.b)), squeezed.b...)
	if difference.b, err = patched(difference.b, base.b, data); err != nil || string(difference.b) != string(raw) {
		return nil
	}
	return data
}

// length returns the approximate length of the unpacked data.
func (p *packing) length(data []byte) int {
	if p.base == nil {
		return p.dict.length(data)
	}
	n, _ := binary.Uvarint(data[1:])
	return int(n)
}

// settled reports whether data was packed for an object that rarely changes: densely, or
// as a difference from data that was.
func (p *packing) settled(data []byte) bool { return dense(p.full(data)) }

// full returns the data that is packed with the dictionary alone: the base, or data
// itself.
func (p *packing) full(data []byte) []byte {
	if p.base != nil {
		return p.base
	}
	return data
}

// from returns how to pack a difference from b, or from the base that b differs from. It
// returns nil if that is packed with another dictionary, or is not as dense as required.
func (b *body) from(d *dictionary, settled bool) *packing {
	switch {
	case b.how == nil || b.how.dict != d || b.how.settled(b.data) != settled:
		return nil
	case b.how.base != nil:
		return b.how
	default:
		return &packing{dict: d, base: b.data}
	}
}
