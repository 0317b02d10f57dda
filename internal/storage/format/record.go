// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
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
	// differenceFlag means that the body is a difference. The number after the dictionary says from
	// what: [ownBase], [lastBase] or more.
	differenceFlag
)

// What a difference is from: packed bytes, which are called the base of the item that has them.
const (
	// ownBase means that the item has the base, before the difference.
	ownBase = iota
	// lastBase means that the base is that of the last item with a base that the same declaration of
	// the segment has for the key. A number that is n higher means that the base is that of the item
	// that is n items before in the same frame or chunk of a complete state.
	lastBase
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
	// base is the item with the base of a difference, nil if the item has it. The [Restorer] keeps in
	// full the base of this item, and in packing how differences from it are packed.
	base    *Item
	full    []byte
	packing *pack.Packing
}

// Size returns the bytes of the body, and of the base of a difference.
func (i *Item) Size() int64 {
	n := int64(len(i.Body))
	if i.base != nil {
		n += int64(len(i.base.Body))
	}
	return n
}

// Change returns the type of the change.
func (i *Item) Change() delta.Type { return delta.Type(i.flags & typeBits) }

// Deleted reports whether the change is a deletion.
func (i *Item) Deleted() bool { return i.Change() == delta.Deleted }

// Missed reports whether a relist has found the deletion.
func (i *Item) Missed() bool { return i.flags&missedFlag != 0 }

// QueuedChange is a change to write. Manager may be empty, and Packed, the packed bytes of the new
// object, nil.
type QueuedChange struct {
	*store.Change[*wire.Object]
	Manager string
	Packed  *pack.Body
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

// Encoder makes items. It numbers the dictionaries that they name. An encoder of a log takes some 25
// bytes for each key.
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
	// bases are hashes of the last base of each key, by hashes of the keys. It is nil for a
	// snapshot, which has each key once.
	bases map[uint64]uint64
	seed  maphash.Seed
	// places are the items in the current frame or chunk of a complete state that have a base, and
	// count is the number of all its items.
	places map[*byte]int
	count  int
}

// NewEncoder returns an encoder for a mirror.
func NewEncoder(id Identity, kind *wire.Kind, packer *objectpack.Packer) *Encoder {
	return &Encoder{
		digest: DigestOf(id), kind: kind, packer: packer, numbers: map[Sum]int{},
		bases: map[uint64]uint64{}, seed: maphash.MakeSeed(), places: map[*byte]int{},
	}
}

// Begin begins a frame or a chunk.
func (e *Encoder) Begin() {
	e.count = 0
	clear(e.places)
}

// refer returns where the reader finds the base of an item, which is its own packed bytes unless it
// is a difference. State means that the item is part of a complete state.
func (e *Encoder) refer(key string, base []byte, dictionary int, difference, state bool) uint64 {
	k, sum := maphash.String(e.seed, key), maphash.Bytes(e.seed, base)+uint64(dictionary)
	if difference {
		if place := e.places[&base[0]]; place > 0 {
			return lastBase + uint64(e.count-place)
		}
		if last, ok := e.bases[k]; ok && last == sum {
			return lastBase
		}
	}
	if e.bases != nil {
		e.bases[k] = sum
	}
	if state {
		e.places[&base[0]] = e.count
	}
	return ownBase
}

// Append appends a change. If labels is set it includes the labels of a packed object, so
// that the reader need not unpack it to read them.
func (e *Encoder) Append(b []byte, c QueuedChange, labels bool) ([]byte, error) {
	o := c.New
	if k := o.Kind(); k != e.kind && k.GroupVersionKind != e.kind.GroupVersionKind {
		return b, fmt.Errorf("%v is not a %s", o, e.kind.Kind)
	}
	s := e.packer.Stored(o, c.Packed)
	number := 0
	if s.How != nil {
		if number = e.number(s.How.Dictionary()); number == 0 {
			s = objectpack.Stored{Data: o.Bytes()}
		}
	}
	e.count++
	flags := byte(c.Type)
	if c.Missed {
		flags |= missedFlag
	}
	if o.Encoding() == wire.JSON {
		flags |= jsonFlag
	}
	body, associated := e.scratch[:0], []byte(nil)
	if labels && s.Labelled {
		flags |= labelledFlag
		body = keyindex.AppendText(body, s.Labels)
	}
	from := uint64(ownBase)
	if s.How != nil && s.How.Base() == nil {
		e.refer(c.Key, s.Data, number, false, labels)
	} else if s.How != nil {
		flags |= differenceFlag
		if from = e.refer(c.Key, s.How.Base(), number, true, labels); from == ownBase {
			body = keyindex.AppendText(body, s.How.Base())
		} else {
			associated = s.How.Base()
		}
	}
	body = append(body, s.Data...)
	e.scratch = body[:0]
	if e.Seal != nil {
		body = e.Seal.Encrypt(nil, body, append(Associated(e.digest, c.Key, c.Version), associated...))
	}
	b = keyindex.AppendText(append(b, flags), c.Key)
	b = binary.AppendUvarint(b, c.Version)
	b = binary.AppendUvarint(b, o.Version())
	b = keyindex.AppendText(b, c.Manager)
	b = binary.AppendUvarint(b, uint64(number))
	if flags&differenceFlag != 0 {
		b = binary.AppendUvarint(b, from)
	}
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
	// bases are the last items with a base of each key. It is nil for a snapshot.
	bases map[string]*Item
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
	if d.bases == nil {
		d.bases = map[string]*Item{}
	}
	items, err = d.items(&r, r.Number())
	return h, items, err
}

// Forget drops the items that later ones of the segment may refer to.
func (d *Decoder) Forget() { d.bases = nil }

// usualItem is the size in bytes of an item of a snapshot, and at least that of an [Item].
const usualItem = 200

// otherBase stands for the bases of keys that are not wanted.
var otherBase Item

// items parses n items, which must be all that is left.
func (d *Decoder) items(r *keyindex.Fields, n uint64) (items []Item, err error) {
	// A grown slice would leave copies behind, to which differences refer.
	all := make([]Item, 0, min(n, uint64(len(r.B)/usualItem)))
	for ; n > 0 && r.Err == nil; n-- {
		i, from, err := d.item(r)
		if err != nil {
			return nil, err
		}
		wanted := d.Only == "" || i.Key == d.Only
		if from != ownBase {
			if i.base = d.baseOf(i.Key, from, all, wanted); wanted && !i.base.hasBase(i.Dictionary) {
				return nil, errors.New("record is a difference from what is not known")
			}
		}
		all = append(all, i)
		if last := &all[len(all)-1]; wanted && d.bases != nil && last.hasBase(i.Dictionary) {
			d.bases[i.Key] = last
		}
		if wanted && d.Only != "" {
			items = append(items, i)
		}
	}
	if r.Err == nil && len(r.B) > 0 {
		r.Err = errors.New("record has a remainder")
	}
	if d.Only == "" {
		items = all
	}
	return items, r.Err
}

// item parses one item. From says what a difference is from, see [ownBase].
func (d *Decoder) item(r *keyindex.Fields) (i Item, from uint64, err error) {
	i = Item{flags: r.Byte(), seal: d.Seal}
	i.Key = string(r.Text())
	i.Version, i.object, i.Manager = r.Number(), r.Number(), r.Text()
	dictionary := r.Number()
	if i.flags&differenceFlag != 0 {
		from = r.Number()
	}
	i.Body = r.Text()
	switch t := delta.Type(i.flags & typeBits); {
	case r.Err != nil:
		return i, from, r.Err
	case t != delta.Added && t != delta.Updated && t != delta.Deleted || len(i.Key) == 0,
		dictionary > uint64(len(d.Sums)), dictionary == 0 && i.flags&differenceFlag != 0:
		return i, from, errors.New("record is malformed")
	case dictionary > 0 && d.Lost:
		return i, from, errors.New("record names a dictionary of a lost one")
	case dictionary > 0:
		i.Dictionary = d.Sums[dictionary-1]
	}
	return i, from, nil
}

// baseOf returns the item with the base of a difference, nil if it is not known. All has the items
// before it in the same frame or chunk.
func (d *Decoder) baseOf(key string, from uint64, all []Item, wanted bool) *Item {
	switch {
	case from == lastBase && !wanted:
		return &otherBase
	case from == lastBase:
		return d.bases[key]
	case from-lastBase <= uint64(len(all)):
		return &all[uint64(len(all))-(from-lastBase)]
	}
	return nil
}

// hasBase reports whether the item has a base that is packed with a dictionary.
func (i *Item) hasBase(dictionary *Sum) bool {
	return i != nil && i.base == nil && i.Dictionary != nil && *i.Dictionary == *dictionary
}
