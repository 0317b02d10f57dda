// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Flags of a batch.
const (
	// OpenBatch means that the relist goes on: the mirror is between two states.
	OpenBatch = 1 << iota
	// PartialBatch means that the batch goes on in the mirror's next frame.
	PartialBatch
	// ListedBatch means that the changes were found by a relist.
	ListedBatch
)

// Flags of a change. Its type is in the lowest bits.
const (
	typeBits   = 1<<2 - 1
	missedFlag = 1 << (iota + 1)
	jsonFlag
	labelledFlag
)

// Item is a change, or an object of a snapshot, as it is in a file. The slices are parts
// of the payload that it was parsed from.
type Item struct {
	flags byte
	// Awaited means that the item stands for an object of the snapshot that is read later.
	// Then Loaded is the object, nil if it did not exist or if it failed to be made.
	Awaited, Failed bool
	Key             string
	Manager         []byte
	Version, object uint64 // of the change, and of the object
	// Dictionary is nil if the object is not packed.
	Dictionary *Sum
	Body       []byte
	seal       *Seal        // nil if the body is not encrypted
	Loaded     *wire.Object // nil until the object was made
}

// Change returns the type of the change.
func (i *Item) Change() delta.Type { return delta.Type(i.flags & typeBits) }

// Deleted reports whether the change is a deletion.
func (i *Item) Deleted() bool { return i.Change() == delta.Deleted }

// Missed reports whether a relist has found the deletion.
func (i *Item) Missed() bool { return i.flags&missedFlag != 0 }

// QueuedChange is a change to write. Manager and Raw may be empty.
type QueuedChange struct {
	*store.Change[*wire.Object]
	Manager string
	Raw     []byte
}

// Objects yields the objects of a state as if they had been added.
func Objects(s *store.Snapshot[*wire.Object]) iter.Seq[QueuedChange] {
	return func(yield func(QueuedChange) bool) {
		for key, o := range s.All() {
			if !yield(Added(key, o)) {
				return
			}
		}
	}
}

// Added returns an object of a state as if it had been added.
func Added(key string, o *wire.Object) QueuedChange {
	return QueuedChange{Change: &store.Change[*wire.Object]{Type: delta.Added, Key: key, New: o, Version: o.Version()}}
}

// Encoder makes items. It numbers the dictionaries that they name.
type Encoder struct {
	digest Digest
	kind   *wire.Kind
	packer *objectpack.Packer
	Seal   *Seal // nil if the mirror is not encrypted
	// Ready reports whether a dictionary may be named.
	Ready   func(*pack.Dictionary) bool
	numbers map[Sum]int
	// Sums are the dictionaries that the items name, by their numbers.
	Sums    []Sum
	scratch []byte
}

// NewEncoder returns an encoder for a mirror.
func NewEncoder(id Identity, kind *wire.Kind, packer *objectpack.Packer) *Encoder {
	return &Encoder{digest: DigestOf(id), kind: kind, packer: packer, numbers: map[Sum]int{}}
}

// Append appends a change. If labels is set it includes the labels of a packed object, so
// that the reader need not unpack it to read them.
func (e *Encoder) Append(b []byte, c QueuedChange, labels bool) ([]byte, error) {
	o := c.New
	if k := o.Kind(); k != e.kind && k.GroupVersionKind != e.kind.GroupVersionKind {
		return b, fmt.Errorf("%v is not a %s", o, e.kind.Kind)
	}
	s := e.packer.Stored(o, c.Raw)
	number := 0
	if s.Dictionary != nil {
		if number = e.number(s.Dictionary); number == 0 {
			s = objectpack.Stored{Data: o.Bytes()}
		}
	}
	flags := byte(c.Type)
	if c.Missed {
		flags |= missedFlag
	}
	if o.Encoding() == wire.JSON {
		flags |= jsonFlag
	}
	body := s.Data
	if labels && s.Labelled {
		flags |= labelledFlag
		e.scratch = append(keyindex.AppendText(e.scratch[:0], s.Labels), s.Data...)
		body = e.scratch
	}
	if e.Seal != nil {
		body = e.Seal.Encrypt(nil, body, Associated(e.digest, c.Key, c.Version))
	}
	b = keyindex.AppendText(append(b, flags), c.Key)
	b = binary.AppendUvarint(b, c.Version)
	b = binary.AppendUvarint(b, o.Version())
	b = keyindex.AppendText(b, c.Manager)
	b = binary.AppendUvarint(b, uint64(number))
	return keyindex.AppendText(b, body), nil
}

// number returns the number of a dictionary, from 1, or 0 if it may not be named.
func (e *Encoder) number(d *pack.Dictionary) int {
	s := Sum(d.Sum())
	n := e.numbers[s]
	if n == 0 && e.Ready(d) {
		e.Sums = append(e.Sums, s)
		n = len(e.Sums)
		e.numbers[s] = n
	}
	return n
}

// AppendBatch appends a batch without its items: the head, the dictionaries that the items name for
// the first time, and the number of items.
func AppendBatch(b []byte, h keyindex.Head, sums []Sum, items int) []byte {
	b = binary.AppendUvarint(h.Append(b), uint64(len(sums)))
	for _, s := range sums {
		b = append(b, s[:]...)
	}
	return binary.AppendUvarint(b, uint64(items))
}

// SealIndex returns the function that encrypts the section of the mirror in an index frame
// for the frames from an offset on, nil if the mirror is not encrypted.
func (e *Encoder) SealIndex(start int64) keyindex.Seal {
	if e.Seal == nil {
		return nil
	}
	return func(m keyindex.Mirror, section []byte) []byte {
		return e.Seal.Encrypt(nil, section, Associated(Digest(m), "", uint64(start)))
	}
}

// Decoder parses items. It has the dictionaries that they name, by number.
type Decoder struct {
	Sums []*Sum
	// Lost means that a frame is missing that may have named dictionaries.
	Lost bool
	Seal *Seal
	// Only is the key of the items that are returned, "" for all.
	Only string
}

// Batch parses a batch.
func (d *Decoder) Batch(payload []byte) (h keyindex.Head, items []Item, err error) {
	r := keyindex.Fields{B: payload}
	h = r.Head()
	for n := r.Number(); n > 0 && r.Err == nil; n-- {
		s := new(Sum)
		copy(s[:], r.Bytes(uint64(len(s))))
		d.Sums = append(d.Sums, s)
	}
	items, err = d.items(&r, r.Number())
	return h, items, err
}

// items parses n items, which must be all that is left.
func (d *Decoder) items(r *keyindex.Fields, n uint64) (items []Item, err error) {
	for ; n > 0 && r.Err == nil; n-- {
		i := Item{flags: r.Byte(), seal: d.Seal}
		key := r.Text()
		i.Version, i.object, i.Manager = r.Number(), r.Number(), r.Text()
		dictionary := r.Number()
		i.Body = r.Text()
		switch t := delta.Type(i.flags & typeBits); {
		case r.Err != nil:
		case t != delta.Added && t != delta.Updated && t != delta.Deleted || len(key) == 0,
			dictionary > uint64(len(d.Sums)):
			return nil, errors.New("record is malformed")
		case dictionary > 0 && d.Lost:
			return nil, errors.New("record names a dictionary of a lost one")
		case dictionary > 0:
			i.Dictionary = d.Sums[dictionary-1]
		}
		if d.Only == "" || string(key) == d.Only {
			i.Key = string(key)
			items = append(items, i)
		}
	}
	if r.Err == nil && len(r.B) > 0 {
		r.Err = errors.New("record has a remainder")
	}
	return items, r.Err
}
