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
	// Data is packed as How says, or the object's own bytes if that is nil.
	Data []byte
	How  *pack.Packing
	// Labels are the labels that are kept beside packed data, in a form that only
	// [Restore] reads. Labelled reports whether they are known.
	Labels   string
	Labelled bool
	// Lazy leaves labels that are not known unread until they are needed, and then unpacks
	// the data each time. It is for objects that are looked at once.
	Lazy bool
}

// Stored returns the bytes of an object in the form in which the object keeps them. If the object
// is not packed, it returns "packed", the result of [Packer.Prepare]. If that is nil and p has a
// dictionary for the kind of the object, it packs the object, which takes some 10 us for 5 KB. It
// does not change the object, so it can be called while the object is being packed. A nil p packs
// nothing.
func (p *Packer) Stored(o *wire.Object, packed *pack.Body) Stored {
	cell := o.Cell()
	if b := cell.Body.Load(); b.How != nil {
		s := Stored{Data: b.Data, How: b.How}
		if *cell.Labels != unlabelled {
			s.Labels, s.Labelled = cell.Labels.Value(), true
		}
		return s
	}
	if packed != nil {
		return Stored{Data: packed.Data, How: packed.How}
	}
	s := Stored{Data: o.Bytes()}
	if p == nil || len(s.Data) < pack.Worth {
		return s
	}
	if d := p.newest(o); d != nil {
		if data := d.Pack(s.Data); data != nil {
			s.Data, s.How = data, d.Alone()
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
	case s.How == nil:
	case !s.How.Packs(s.Data):
		return nil, fmt.Errorf("stored object %q: it is not packed in a known form", key)
	case s.Labelled && scan.ValidLabels(s.Labels):
		labels = unique.Make(s.Labels)
	case s.Lazy:
	default:
		raw, err := s.How.TryUnpack(s.Data)
		if err != nil {
			return nil, fmt.Errorf("stored object %q: %w", key, err)
		}
		labels = keepLabels(raw, e, unlabelled)
	}
	return wire.Assemble(kind, e, key, version, &pack.Body{Data: s.Data, How: s.How}, labels), nil
}
