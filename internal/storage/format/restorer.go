// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
	"github.com/watershed-project/watershed/wire"
)

// Restorer makes objects from items.
type Restorer struct {
	Digest       Digest
	Kind         *wire.Kind
	Dictionaries *Dictionaries
	// Lazy is [objectpack.Stored.Lazy].
	Lazy bool
	// Want selects the keys of the objects of a state, nil for all.
	Want func(key string) bool
}

// Object returns the object of an item, and makes it once. It copies the bytes.
func (r *Restorer) Object(i *Item) (*wire.Object, error) {
	if i.Failed {
		return nil, fmt.Errorf("object %q of the snapshot cannot be made", i.Key)
	}
	if i.Loaded != nil || i.Awaited {
		return i.Loaded, nil
	}
	s, first, err := r.stored(i)
	if err != nil {
		return nil, fmt.Errorf("object %q: %w", i.Key, err)
	}
	e := wire.Protobuf
	if i.flags&jsonFlag != 0 {
		e = wire.JSON
	}
	o, err := objectpack.Restore(r.Kind, e, i.Key, i.object, s)
	if err == nil && first {
		if err = r.check(o, s); err != nil {
			r.Dictionaries.unload(*i.Dictionary)
		}
	}
	if err != nil {
		return nil, err
	}
	i.Loaded = o
	return o, nil
}

// stored returns the bytes of an item. First means that the dictionary was read from its file.
func (r *Restorer) stored(i *Item) (s objectpack.Stored, first bool, err error) {
	s.Lazy = r.Lazy
	associated := Associated(r.Digest, i.Key, i.Version)
	if i.base != nil {
		if s.How, first, err = r.packing(i.base); err != nil {
			return s, false, err
		}
		associated = append(associated, s.How.Base()...)
	}
	body := i.Body
	if i.seal != nil {
		if body, err = i.seal.Decrypt(body, associated); err != nil {
			return s, false, err
		}
	}
	f := keyindex.Fields{B: body}
	if i.flags&labelledFlag != 0 {
		s.Labels, s.Labelled = string(f.Text()), true
	}
	difference := i.flags&differenceFlag != 0
	if difference && i.base == nil {
		base := f.Text()
		if i.full == nil {
			i.full = bytes.Clone(base)
		}
		s.How, first, err = r.packing(i)
	} else if i.Dictionary != nil && i.base == nil {
		var d *pack.Dictionary
		if d, first, err = r.dictionary(i); err == nil {
			s.How = d.Alone()
		}
	}
	if err = errors.Join(f.Err, err); err != nil {
		return s, false, err
	}
	if s.Data = i.full; difference || s.Data == nil {
		s.Data = append(make([]byte, 0, len(f.B)), f.B...)
	}
	if !difference {
		i.full = s.Data
	}
	return s, first, nil
}

// packing returns how differences from the base of an item are packed. It makes it once, so that
// they share the base.
func (r *Restorer) packing(i *Item) (p *pack.Packing, first bool, err error) {
	if i.full == nil {
		if _, first, err = r.stored(i); err != nil {
			return nil, false, err
		}
	}
	if i.packing == nil {
		d, again, err := r.dictionary(i)
		if err != nil {
			return nil, false, err
		}
		i.packing, first = d.From(i.full), first || again
	}
	return i.packing, first, nil
}

// dictionary returns the dictionary of an item.
func (r *Restorer) dictionary(i *Item) (d *pack.Dictionary, first bool, err error) {
	return r.Dictionaries.load(dictionaryFile{*i.Dictionary, i.seal != nil})
}

// check unpacks the first object that is read with a dictionary, and compares it with its
// record.
func (r *Restorer) check(o *wire.Object, s objectpack.Stored) error {
	raw, err := s.How.TryUnpack(s.Data)
	if err != nil {
		return fmt.Errorf("object %q: %w", o.Key(), err)
	}
	again, err := wire.NewObject(raw, o.Encoding(), r.Kind)
	if err != nil {
		return err
	}
	if again.Key() != o.Key() || again.Version() != o.Version() {
		return fmt.Errorf("object %q: its bytes are those of %v", o.Key(), again)
	}
	return nil
}
