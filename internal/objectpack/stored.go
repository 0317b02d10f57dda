// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack

import (
	"fmt"
	"unique"

	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

// Stored is an object's bytes in the form in which the object keeps them, for a file. The
// bytes are shared and must not be modified.
type Stored struct {
	// Data is packed with the dictionary, or the object's own bytes if that is nil.
	Data       []byte
	Dictionary *pack.Dictionary
	// Labels are the labels that are kept beside packed data, in a form that only
	// [Restore] reads. Labelled reports whether they are known.
	Labels   string
	Labelled bool
	// Lazy leaves labels that are not known unread until they are needed, and then unpacks
	// the data each time. It is for objects that are looked at once.
	Lazy bool
}

// Store returns the bytes of an object in their current form, except for a difference:
// that is packed with the dictionary alone, which takes some 10 us for 5 KB. Raw, if it is
// not nil, are the object's bytes, so that the difference need not be unpacked.
func Store(o *wire.Object, raw []byte) Stored {
	cell := o.Cell()
	b := cell.Body.Load()
	if b.How == nil {
		return Stored{Data: o.Bytes()}
	}
	s := Stored{Data: b.Data, Dictionary: b.How.Dictionary()}
	if *cell.Labels != unlabelled {
		s.Labels, s.Labelled = cell.Labels.Value(), true
	}
	if !b.Difference() {
		return s
	}
	if raw == nil {
		raw = b.How.Unpack(nil, b.Data)
	}
	if s.Data = s.Dictionary.Pack(raw); s.Data == nil {
		return Stored{Data: raw}
	}
	return s
}

// Stored returns the bytes of an object packed, if it is packed already or if p has a
// dictionary for its kind. It does not change the object, so it can be called while the
// object is being packed. A nil p packs nothing. Raw is as for [Store].
func (p *Packer) Stored(o *wire.Object, raw []byte) Stored {
	s := Store(o, raw)
	if p == nil || s.Dictionary != nil || len(s.Data) < pack.Worth {
		return s
	}
	if d := p.newest(o); d != nil {
		if data := d.Pack(s.Data); data != nil {
			s.Data, s.Dictionary = data, d
		}
	}
	return s
}

// Restore returns the object that had the given key, version and stored bytes. It keeps
// s.Data, which must not be modified afterwards. If the labels of packed data are not
// known, it unpacks the data once to read them, unless s is lazy. It does not check that the
// bytes belong to the key.
func Restore(kind *wire.Kind, e wire.Encoding, key string, version uint64, s Stored) (*wire.Object, error) {
	labels := unlabelled
	switch {
	case e != wire.JSON && e != wire.Protobuf:
		return nil, fmt.Errorf("stored object %q: %v", key, e)
	case s.Dictionary == nil:
	case !pack.Packs(s.Data):
		return nil, fmt.Errorf("stored object %q: it is not packed in a known form", key)
	case s.Labelled && scan.ValidLabels(s.Labels):
		labels = unique.Make(s.Labels)
	case s.Lazy:
	default:
		raw, err := s.Dictionary.Unpack(s.Data)
		if err != nil {
			return nil, fmt.Errorf("stored object %q: %w", key, err)
		}
		labels = keepLabels(raw, e, unlabelled)
	}
	body := &pack.Body{Data: s.Data}
	if s.Dictionary != nil {
		body = s.Dictionary.Body(s.Data)
	}
	return wire.Assemble(kind, e, key, version, body, labels), nil
}
