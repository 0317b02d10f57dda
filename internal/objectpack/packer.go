// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack

import (
	"unique"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

// Packer packs objects. It makes a dictionary for each kind and encoding from the objects
// that it has seen. A dictionary that no longer fits is replaced, and freed once no
// object is packed with it.
//
// Packers can share their dictionaries, see [Packer.Fork], so that a kind has one
// dictionary for all sources of its objects. All methods are safe for concurrent use, but
// not on the same object. A kind of which the packers have seen more than 64 KiB costs
// about 300 KB.
type Packer struct{ trainers *pack.Trainers }

// NewPacker returns a packer without dictionaries. Its dictionaries and samples, and those
// of the packers that share them, take at most a number of bytes together. When there is
// no room for those of another kind, the objects of that kind are not packed. 0 means
// 256 MiB, which is enough for some 600 kinds with objects of 5 KB.
func NewPacker(bytes int64) *Packer { return &Packer{pack.NewTrainers(bytes)} }

// Fork returns a packer that shares the dictionaries of p. The dictionary of a kind is
// freed when none of the packers that have seen the kind is in use, and no object is packed
// with it.
func (p *Packer) Fork() *Packer { return &Packer{p.trainers.Fork()} }

// trainer returns the trainer for the kind of an object, nil if there is no room for it.
func (p *Packer) trainer(o *wire.Object) *pack.Trainer {
	return p.trainers.Of(pack.Key{GroupVersionKind: o.GroupVersionKind(), Encoding: uint8(o.Encoding())})
}

// Body is the stored form of an object's bytes.
type Body = pack.Body

// Pack packs an object that was not packed before, which takes about 10 us for 5 KB. The
// object stays as it is if there is no dictionary for it yet or if it would not get
// smaller. Last is the previous state of the object and may be nil. If it is packed and
// the two differ little, the object is stored as a difference, which takes 4 us.
func (p *Packer) Pack(o, last *wire.Object) {
	var before *Body
	if last != nil {
		before = last.Cell().Body.Load()
	}
	if packed := p.Prepare(o, before); packed != nil {
		p.Store(o, packed, last)
	}
}

// Prepare returns what Pack would store in an object, nil if it would store nothing. "before" is
// what the previous state of the object has or will store, and may be nil.
func (p *Packer) Prepare(o *wire.Object, before *Body) *Body {
	cell := o.Cell()
	b := cell.Body.Load()
	if b.How != nil || len(b.Data) < pack.Worth {
		return nil
	}
	t := p.trainer(o)
	if t == nil {
		return nil
	}
	if t.Sample(b.Data) {
		cell.Lease.End()
	}
	return t.Pack(b.Data, before)
}

// Store stores the result of Prepare in the object, unless the object has been packed since. Last
// is the previous state of the object, and may be nil.
func (p *Packer) Store(o *wire.Object, packed *Body, last *wire.Object) {
	if b := o.Cell().Body.Load(); b.How == nil {
		repack(o, b.Data, packed, last)
	}
}

// Settle packs an object densely and with the newest dictionary, which takes about 75 us
// for 5 KB. Near is an object that may be similar and that was settled before, such as
// the one with the previous key. It may be nil. If the two are similar, o is stored as a
// difference from near, which takes less than half the time and half the space.
func (p *Packer) Settle(o, near *wire.Object) {
	cell := o.Cell()
	b := cell.Body.Load()
	d := p.newest(o)
	if d == nil || b.Settled() && b.How.Dictionary() == d {
		return
	}
	raw, opened := cell.Open()
	defer opened.Free()
	if len(raw) < pack.Worth {
		return
	}
	var similar *pack.Body
	if near != nil {
		similar = near.Cell().Body.Load()
	}
	if packed := d.Settle(raw, similar, b); packed != nil {
		repack(o, raw, packed, nil)
	} else if b.How != nil {
		// The old dictionary should be freed, and the new one does not help here.
		cell.Body.Store(&pack.Body{Data: append([]byte(nil), raw...)})
	}
}

// repack replaces the body. Before the first packed body it stores the labels.
func repack(o *wire.Object, raw []byte, packed *pack.Body, before *wire.Object) {
	cell := o.Cell()
	if !o.Packed() && *cell.Labels == unlabelled {
		known := unlabelled
		if before != nil && before.Packed() {
			known = *before.Cell().Labels
		}
		*cell.Labels = keepLabels(raw, o.Encoding(), known)
	}
	last := cell.Body.Swap(packed)
	if last.How == nil {
		cell.Lease.Recycle(last.Data)
	}
}

// Unify is [wire.Same] for an object that is stored and one that has just arrived. If they are
// the same and the stored one is packed, the other shares its packed bytes, so that its own
// can be freed at once. The arrived object must not be packed at the same time.
func Unify(stored, arrived *wire.Object) bool {
	if !wire.Same(stored, arrived) {
		return false
	}
	from := stored.Cell()
	if b := from.Body.Load(); stored != arrived && b.How != nil && !arrived.Packed() {
		to := arrived.Cell()
		*to.Labels = *from.Labels
		to.Lease.Recycle(to.Body.Swap(b).Data)
	}
	return true
}

// Newest returns a value that changes when the object's kind gets another dictionary.
// Objects that were settled before can then be settled again.
func (p *Packer) Newest(o *wire.Object) any { return p.newest(o) }

// newest returns the newest dictionary of an object's kind, or nil.
func (p *Packer) newest(o *wire.Object) *pack.Dictionary {
	if t := p.trainer(o); t != nil {
		return t.Dictionary()
	}
	return nil
}

// DictionaryBytes returns the bytes that dictionaries and samples take, of all packers that
// share them. Dictionaries that only older objects still use are counted until they are freed.
func (p *Packer) DictionaryBytes() int64 { return p.trainers.Bytes() }

// unlabelled marks an object whose labels are not stored.
var unlabelled unique.Handle[string]

// keepLabels returns the labels in stored form. The labels in last are probably the same,
// and comparing them is faster than interning the string again.
func keepLabels(raw []byte, e wire.Encoding, last unique.Handle[string]) unique.Handle[string] {
	s := buffer.NewScratch()
	defer s.Free()
	var ok bool
	if s.B, ok = scan.AppendLabels(s.B[:0], raw, e == wire.JSON); !ok || len(s.B) > scan.MaxLabels {
		return unlabelled
	}
	if last != unlabelled && last.Value() == string(s.B) {
		return last
	}
	return unique.Make(string(s.B))
}
