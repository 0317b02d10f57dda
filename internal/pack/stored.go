// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/s2"
)

// Sum returns the SHA-256 of Bytes. It is computed once.
func (d *Dictionary) Sum() [sha256.Size]byte {
	d.sumOnce.Do(func() { d.sum = sha256.Sum256(d.Bytes()) })
	return d.sum
}

// Bytes returns the content of the dictionary in a form that [ParseDictionary] reads.
func (d *Dictionary) Bytes() []byte {
	b := binary.AppendUvarint(nil, uint64(len(d.tables)))
	b = append(b, d.tables...)
	return append(b, d.history...)
}

// ParseDictionary returns the dictionary with the given Bytes. Its memory, about 230 KB,
// does not count against the limit of packers.
func ParseDictionary(b []byte) (*Dictionary, error) {
	n, l := binary.Uvarint(b)
	if l <= 0 || n > uint64(len(b)-l) {
		return nil, errors.New("dictionary is truncated")
	}
	b = bytes.Clone(b[l:])
	d := &Dictionary{history: b[n:]}
	d.alone.dict = d
	if n > 0 {
		d.tables = b[:n:n]
	}
	if d.fast = s2.MakeDict(d.history, nil); d.fast == nil {
		return nil, errors.New("dictionary is too small")
	}
	d.encoders.New = d.newEncoder
	if d.once.Do(d.makeDecoder); d.decoder == nil {
		return nil, errors.New("dictionary has damaged code tables")
	}
	return d, nil
}

// Alone returns how data is packed with the dictionary and without a base.
func (d *Dictionary) Alone() *Packing { return &d.alone }

// From returns how differences from a base are packed. The base is packed with the dictionary.
func (d *Dictionary) From(base []byte) *Packing { return &Packing{dict: d, base: base} }

// Packs reports whether data, and the base of a difference, have the form that p gives them.
func (p *Packing) Packs(data []byte) bool {
	full := p.full(data)
	return len(data) >= 2 && (p.base == nil) == (data[0] != packedDifference) &&
		len(full) >= 2 && (full[0] == packedFast || full[0] == packedDense)
}

// TryUnpack returns the bytes that were packed as data, which may be damaged.
func (p *Packing) TryUnpack(data []byte) ([]byte, error) {
	if !p.Packs(data) {
		return nil, errors.New("packed data is malformed")
	}
	return p.decode(nil, data)
}
