// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"fmt"

	"github.com/watershed-project/watershed/internal/objectpack"
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
	body, err := i.Body, error(nil)
	if i.seal != nil {
		if body, err = i.seal.Decrypt(body, Associated(r.Digest, i.Key, i.Version)); err != nil {
			return nil, fmt.Errorf("object %q: %w", i.Key, err)
		}
	}
	f := keyindex.Fields{B: body}
	s := objectpack.Stored{Lazy: r.Lazy}
	if i.flags&labelledFlag != 0 {
		s.Labels, s.Labelled = string(f.Text()), true
	}
	if f.Err != nil {
		return nil, fmt.Errorf("object %q: %w", i.Key, f.Err)
	}
	s.Data = append(make([]byte, 0, len(f.B)), f.B...)
	first := false
	if i.Dictionary != nil {
		if s.Dictionary, first, err = r.Dictionaries.load(dictionaryFile{*i.Dictionary, i.seal != nil}); err != nil {
			return nil, fmt.Errorf("object %q: %w", i.Key, err)
		}
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

// check unpacks the first object that is read with a dictionary, and compares it with its
// record.
func (r *Restorer) check(o *wire.Object, s objectpack.Stored) error {
	raw, err := s.Dictionary.Unpack(s.Data)
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
