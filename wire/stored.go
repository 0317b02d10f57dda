// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unique"

	"github.com/klauspost/compress/s2"
)

// Dictionary is what the packed objects of a kind have in common. Its content never
// changes. It contains whole objects, so it is as confidential as they are.
type Dictionary = dictionary

// Stored is an object's bytes in the form in which the object keeps them, for a file. The
// bytes are shared and must not be modified.
type Stored struct {
	// Data is packed with the dictionary, or the object's own bytes if that is nil.
	Data       []byte
	Dictionary *Dictionary
	// Labels are the labels that are kept beside packed data, in a form that only
	// [Restore] reads. Labelled reports whether they are known.
	Labels   string
	Labelled bool
	// Lazy leaves labels that are not known unread until they are needed, and then unpacks
	// the data each time. It is for objects that are looked at once.
	Lazy bool
}

// Stored returns the bytes of an object in their current form, except for a difference:
// that is packed with the dictionary alone, which takes some 10 us for 5 KB. Raw, if it is
// not nil, are the object's bytes, so that the difference need not be unpacked.
func (o *Object) Stored(raw []byte) Stored {
	b := o.body.Load()
	if b.how == nil {
		return Stored{Data: o.Bytes()}
	}
	s := Stored{Data: b.data, Dictionary: b.how.dict}
	if o.labels != unlabelled {
		s.Labels, s.Labelled = o.labels.Value(), true
	}
	if b.how.base == nil {
		return s
	}
	if raw == nil {
		raw = b.how.unpack(nil, b.data)
	}
	if s.Data = s.Dictionary.pack(raw); s.Data == nil {
		return Stored{Data: raw}
	}
	return s
}

// Stored returns the bytes of an object packed, if it is packed already or if p has a
// dictionary for its kind. It does not change the object, so it can be called while the
// object is being packed. A nil p packs nothing. Raw is as for [Object.Stored].
func (p *Packer) Stored(o *Object, raw []byte) Stored {
	s := o.Stored(raw)
	if p == nil || s.Dictionary != nil || len(s.Data) < worthPacking {
		return s
	}
	if d := p.newest(o); d != nil {
		if data := d.pack(s.Data); data != nil {
			s.Data, s.Dictionary = data, d
		}
	}
	return s
}

// Restore returns the object that had the given key, version and stored bytes. It keeps
// s.Data, which must not be modified afterwards. If the labels of packed data are not
// known, it unpacks the data once to read them, unless s is lazy. It does not check that the
// bytes belong to the key.
func Restore(kind *Kind, e Encoding, key string, version uint64, s Stored) (*Object, error) {
	o := &Object{kind: kind, key: key, version: version, encoding: e}
	o.split = uint16(strings.IndexByte(key, '/') + 1)
	switch {
	case e != JSON && e != Protobuf:
		return nil, fmt.Errorf("stored object %q: %v", key, e)
	case s.Dictionary == nil:
	case len(s.Data) < 2 || s.Data[0] != packedFast && s.Data[0] != packedDense:
		return nil, fmt.Errorf("stored object %q: it is not packed in a known form", key)
	case s.Labelled && validLabels(s.Labels):
		o.labels = unique.Make(s.Labels)
	case s.Lazy:
	default:
		raw, err := s.Dictionary.Unpack(s.Data)
		if err != nil {
			return nil, fmt.Errorf("stored object %q: %w", key, err)
		}
		o.labels = keepLabels(raw, e, unlabelled)
	}
	b := &body{data: s.Data}
	if s.Dictionary != nil {
		b.how = &s.Dictionary.alone
	}
	o.body.Store(b)
	return o, nil
}

// validLabels reports whether labels are in stored form.
func validLabels(labels string) bool {
	b := []byte(labels)
	for n := 0; len(b) > 0 || n%2 != 0; n++ {
		size, l := binary.Uvarint(b)
		if l <= 0 || size > uint64(len(b)-l) {
			return false
		}
		b = b[l+int(size):]
	}
	return true
}

// Sum returns the SHA-256 of Bytes. It is computed once.
func (d *dictionary) Sum() [sha256.Size]byte {
	d.sumOnce.Do(func() { d.sum = sha256.Sum256(d.Bytes()) })
	return d.sum
}

// Bytes returns the content of the dictionary in a form that [ParseDictionary] reads.
func (d *dictionary) Bytes() []byte {
	b := binary.AppendUvarint(nil, uint64(len(d.tables)))
	b = append(b, d.tables...)
	return append(b, d.history...)
}

// ParseDictionary returns the dictionary with the given Bytes. Its memory, about 230 KB,
// does not count against the limit of a [Packer].
func ParseDictionary(b []byte) (*Dictionary, error) {
	n, l := binary.Uvarint(b)
	if l <= 0 || n > uint64(len(b)-l) {
		return nil, errors.New("dictionary is truncated")
	}
	b = bytes.Clone(b[l:])
	d := &dictionary{history: b[n:]}
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

// Unpack returns the bytes that were packed as data.
func (d *dictionary) Unpack(data []byte) ([]byte, error) {
	if len(data) < 2 {
		return nil, errors.New("packed data is truncated")
	}
	return d.decode(nil, data)
}
