// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/disk/internal/keyindex"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Flags of a batch.
const (
	// openBatch means that the relist goes on: the mirror is between two states.
	openBatch = 1 << iota
	// partialBatch means that the batch goes on in the mirror's next frame.
	partialBatch
	// listedBatch means that the changes were found by a relist.
	listedBatch
)

// Flags of a change. Its type is in the lowest bits.
const (
	typeBits   = 1<<2 - 1
	missedFlag = 1 << (iota + 1)
	jsonFlag
	labelledFlag
)

// item is a change, or an object of a snapshot, as it is in a file. The slices are parts
// of the payload that it was parsed from.
type item struct {
	flags byte
	// awaited means that the item stands for an object of the snapshot that is read later.
	// Then restored is the object, nil if it did not exist or if it failed to be made.
	awaited, failed bool
	key             string
	manager         []byte
	version, object uint64 // of the change, and of the object
	// dictionary is nil if the object is not packed.
	dictionary *sum
	body       []byte
	seal       *seal        // nil if the body is not encrypted
	restored   *wire.Object // nil until the object was made
}

// change returns the type of the change.
func (i *item) change() delta.Type { return delta.Type(i.flags & typeBits) }

// deleted reports whether the change is a deletion.
func (i *item) deleted() bool { return i.change() == delta.Deleted }

// missed reports whether a relist has found the deletion.
func (i *item) missed() bool { return i.flags&missedFlag != 0 }

// queuedChange is a change to write. manager and raw may be empty.
type queuedChange struct {
	*store.Change[*wire.Object]
	manager string
	raw     []byte
}

// encoder makes items. It numbers the dictionaries that they name.
type encoder struct {
	digest digest
	kind   *wire.Kind
	packer *wire.Packer
	seal   *seal // nil if the mirror is not encrypted
	// ready reports whether a dictionary may be named.
	ready   func(*pack.Dictionary) bool
	numbers map[sum]int
	sums    []sum
	scratch []byte
}

// newEncoder returns an encoder for a mirror.
func newEncoder(id Identity, kind *wire.Kind, packer *wire.Packer) *encoder {
	return &encoder{digest: digestOf(id), kind: kind, packer: packer, numbers: map[sum]int{}}
}

// append appends a change. If labels is set it includes the labels of a packed object, so
// that the reader need not unpack it to read them.
func (e *encoder) append(b []byte, c queuedChange, labels bool) ([]byte, error) {
	o := c.New
	if k := o.Kind(); k != e.kind && k.GroupVersionKind != e.kind.GroupVersionKind {
		return b, fmt.Errorf("%v is not a %s", o, e.kind.Kind)
	}
	s := e.packer.Stored(o, c.raw)
	number := 0
	if s.Dictionary != nil {
		if number = e.number(s.Dictionary); number == 0 {
			s = wire.Stored{Data: o.Bytes()}
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
		e.scratch = append(appendText(e.scratch[:0], s.Labels), s.Data...)
		body = e.scratch
	}
	if e.seal != nil {
		body = e.seal.close(nil, body, associated(e.digest, c.Key, c.Version))
	}
	b = appendText(append(b, flags), c.Key)
	b = binary.AppendUvarint(b, c.Version)
	b = binary.AppendUvarint(b, o.Version())
	b = appendText(b, c.manager)
	b = binary.AppendUvarint(b, uint64(number))
	return appendText(b, body), nil
}

// number returns the number of a dictionary, from 1, or 0 if it may not be named.
func (e *encoder) number(d *pack.Dictionary) int {
	s := sum(d.Sum())
	n := e.numbers[s]
	if n == 0 && e.ready(d) {
		e.sums = append(e.sums, s)
		n = len(e.sums)
		e.numbers[s] = n
	}
	return n
}

func (h batchHead) append(b []byte, sums []sum, items int) []byte {
	b = append(b, h.flags)
	b = binary.AppendUvarint(b, h.version)
	b = binary.AppendUvarint(b, h.era)
	b = binary.AppendUvarint(b, uint64(h.time.UnixNano()))
	b = binary.AppendUvarint(b, uint64(len(sums)))
	for _, s := range sums {
		b = append(b, s[:]...)
	}
	return binary.AppendUvarint(b, uint64(items))
}

// decoder parses items. It has the dictionaries that they name, by number.
type decoder struct {
	sums []*sum
	// lost means that a frame is missing that may have named dictionaries.
	lost bool
	seal *seal
	// only is the key of the items that are returned, "" for all.
	only string
}

// batch parses a batch.
func (d *decoder) batch(payload []byte) (h batchHead, items []item, err error) {
	r := keyindex.Fields{B: payload}
	h.flags = r.Byte()
	h.version, h.era = r.Number(), r.Number()
	h.time = time.Unix(0, int64(r.Number()))
	for n := r.Number(); n > 0 && r.Err == nil; n-- {
		s := new(sum)
		copy(s[:], r.Bytes(uint64(len(s))))
		d.sums = append(d.sums, s)
	}
	items, err = d.items(&r, r.Number())
	return h, items, err
}

// timeOf returns the time of a batch.
func timeOf(payload []byte) time.Time {
	r := keyindex.Fields{B: payload}
	r.Byte()
	r.Number() // the version
	r.Number() // the era
	return time.Unix(0, int64(r.Number()))
}

// items parses n items, which must be all that is left.
func (d *decoder) items(r *keyindex.Fields, n uint64) (items []item, err error) {
	for ; n > 0 && r.Err == nil; n-- {
		i := item{flags: r.Byte(), seal: d.seal}
		key := r.Text()
		i.version, i.object, i.manager = r.Number(), r.Number(), r.Text()
		dictionary := r.Number()
		i.body = r.Text()
		switch t := delta.Type(i.flags & typeBits); {
		case r.Err != nil:
		case t != delta.Added && t != delta.Updated && t != delta.Deleted || len(key) == 0 || dictionary > uint64(len(d.sums)):
			return nil, errors.New("record is malformed")
		case dictionary > 0 && d.lost:
			return nil, errors.New("record names a dictionary of a lost one")
		case dictionary > 0:
			i.dictionary = d.sums[dictionary-1]
		}
		if d.only == "" || string(key) == d.only {
			i.key = string(key)
			items = append(items, i)
		}
	}
	if r.Err == nil && len(r.B) > 0 {
		r.Err = errors.New("record has a remainder")
	}
	return items, r.Err
}

// restorer makes objects from items.
type restorer struct {
	digest       digest
	kind         *wire.Kind
	dictionaries *dictionaries
	// lazy is [wire.Stored.Lazy].
	lazy bool
	// want selects the keys of the objects of a state, nil for all.
	want func(key string) bool
}

// object returns the object of an item, and makes it once. It copies the bytes.
func (r *restorer) object(i *item) (*wire.Object, error) {
	if i.failed {
		return nil, fmt.Errorf("object %q of the snapshot cannot be made", i.key)
	}
	if i.restored != nil || i.awaited {
		return i.restored, nil
	}
	body, err := i.body, error(nil)
	if i.seal != nil {
		if body, err = i.seal.open(body, associated(r.digest, i.key, i.version)); err != nil {
			return nil, fmt.Errorf("object %q: %w", i.key, err)
		}
	}
	f := keyindex.Fields{B: body}
	s := wire.Stored{Lazy: r.lazy}
	if i.flags&labelledFlag != 0 {
		s.Labels, s.Labelled = string(f.Text()), true
	}
	if f.Err != nil {
		return nil, fmt.Errorf("object %q: %w", i.key, f.Err)
	}
	s.Data = append(make([]byte, 0, len(f.B)), f.B...)
	first := false
	if i.dictionary != nil {
		if s.Dictionary, first, err = r.dictionaries.load(dictionaryFile{*i.dictionary, i.seal != nil}); err != nil {
			return nil, fmt.Errorf("object %q: %w", i.key, err)
		}
	}
	e := wire.Protobuf
	if i.flags&jsonFlag != 0 {
		e = wire.JSON
	}
	o, err := wire.Restore(r.kind, e, i.key, i.object, s)
	if err == nil && first {
		if err = r.check(o, s); err != nil {
			r.dictionaries.unload(*i.dictionary)
		}
	}
	if err != nil {
		return nil, err
	}
	i.restored = o
	return o, nil
}

// check unpacks the first object that is read with a dictionary, and compares it with its
// record.
func (r *restorer) check(o *wire.Object, s wire.Stored) error {
	raw, err := s.Dictionary.Unpack(s.Data)
	if err != nil {
		return fmt.Errorf("object %q: %w", o.Key(), err)
	}
	again, err := wire.NewObject(raw, o.Encoding(), r.kind)
	if err != nil {
		return err
	}
	if again.Key() != o.Key() || again.Version() != o.Version() {
		return fmt.Errorf("object %q: its bytes are those of %v", o.Key(), again)
	}
	return nil
}

// Change is a stored change of one object.
type Change struct {
	// Type is Added, Updated or Deleted.
	Type delta.Type
	// Missed marks a deletion that a relist found. Object may not be the final state.
	Missed bool
	Key    string
	// Object is the state after the change, or the last state of a deleted object. Old is
	// the state before the change, nil if the object did not exist. It is set in
	// [State.Records] only.
	Object, Old *wire.Object
	// Version is the version of the change.
	Version uint64
	// Manager is the field manager that made the change, empty if it is not known.
	Manager string
}

// Record is a stored batch: the changes that led from one state of the server to another.
type Record struct {
	// Version is the version of the state after the changes.
	Version uint64
	// Time is when the batch arrived.
	Time time.Time
	// Listed means that a relist found the changes. Other changes may have happened
	// between the versions.
	Listed  bool
	Changes []Change
}

// recordOf returns a batch with its objects.
func recordOf(r *restorer, c *commit) (Record, error) {
	rec := Record{Version: c.version, Time: c.time, Listed: c.flags&listedBatch != 0}
	for n := range c.items {
		i := &c.items[n]
		o, err := r.object(i)
		if err != nil {
			return rec, err
		}
		change := Change{Type: i.change(), Missed: i.missed(), Key: i.key, Object: o, Version: i.version, Manager: string(i.manager)}
		if c.olds != nil && c.olds[n] != nil {
			if change.Old, err = r.object(c.olds[n]); err != nil {
				return rec, err
			}
		}
		rec.Changes = append(rec.Changes, change)
	}
	return rec, nil
}
