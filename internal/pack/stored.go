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

// Packs reports whether data has the form of data that a dictionary has packed.
func Packs(data []byte) bool {
	return len(data) >= 2 && (data[0] == packedFast || data[0] == packedDense)
}

// Body returns the body of an object with data that is packed with the dictionary.
func (d *Dictionary) Body(data []byte) *Body { return &Body{Data: data, How: &d.alone} }

// Unpack returns the bytes that were packed as data.
func (d *Dictionary) Unpack(data []byte) ([]byte, error) {
	if len(data) < 2 {
		return nil, errors.New("packed data is truncated")
	}
	return d.decode(nil, data)
}
