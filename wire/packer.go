// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"github.com/watershed-project/watershed/internal/pack"
)

// Packer packs objects. It makes a dictionary for each kind and encoding from the objects
// that it has seen. A dictionary that no longer fits is replaced, and freed once no
// object is packed with it.
//
// Packers can share their dictionaries, see [Packer.Fork], so that a kind has one
// dictionary for all sources of its objects. All methods are safe for concurrent use, but
// not on the same object. A kind of which the packers have seen more than 64 KiB costs
// about 300 KB.
type Packer struct{ trainers pack.Trainers }

// NewPacker returns a packer without dictionaries. Its dictionaries and samples, and those
// of the packers that share them, take at most a number of bytes together. When there is
// no room for those of another kind, the objects of that kind are not packed. 0 means
// 256 MiB, which is enough for some 600 kinds with objects of 5 KB.
func NewPacker(bytes int64) *Packer {
	p := new(Packer)
	p.trainers.Init(bytes)
	return p
}

// Fork returns a packer that shares the dictionaries of p. The dictionary of a kind is
// freed when none of the packers that have seen the kind is in use, and no object is packed
// with it.
func (p *Packer) Fork() *Packer {
	fork := new(Packer)
	fork.trainers.Fork(&p.trainers)
	return fork
}

// trainer returns the trainer for the kind of an object, nil if there is no room for it.
func (p *Packer) trainer(o *Object) *pack.Trainer {
	return p.trainers.Of(pack.Key{GroupVersionKind: o.kind.GroupVersionKind, Encoding: uint8(o.encoding)})
}

// Pack packs an object that was not packed before, which takes about 10 us for 5 KB. The
// object stays as it is if there is no dictionary for it yet or if it would not get
// smaller. Last is the previous state of the object and may be nil. If it is packed and
// the two differ little, the object is stored as a difference, which takes 4 us.
func (p *Packer) Pack(o, last *Object) {
	b := o.body.Load()
	if b.How != nil || len(b.Data) < pack.Worth {
		return
	}
	t := p.trainer(o)
	if t == nil {
		return
	}
	if t.Sample(b.Data) {
		o.lease.End()
	}
	var before *pack.Body
	if last != nil {
		before = last.body.Load()
	}
	if packed := t.Pack(b.Data, before); packed != nil {
		o.repack(b.Data, packed, last)
	}
}

// Settle packs an object densely and with the newest dictionary, which takes about 75 us
// for 5 KB. Near is an object that may be similar and that was settled before, such as
// the one with the previous key. It may be nil. If the two are similar, o is stored as a
// difference from near, which takes less than half the time and half the space.
func (p *Packer) Settle(o, near *Object) {
	b := o.body.Load()
	d := p.newest(o)
	if d == nil || b.Settled() && b.How.Dictionary() == d {
		return
	}
	raw, opened := o.open()
	defer opened.free()
	if len(raw) < pack.Worth {
		return
	}
	var similar *pack.Body
	if near != nil {
		similar = near.body.Load()
	}
	if packed := d.Settle(raw, similar, b); packed != nil {
		o.repack(raw, packed, nil)
	} else if b.How != nil {
		// The old dictionary should be freed, and the new one does not help here.
		o.body.Store(&pack.Body{Data: append([]byte(nil), raw...)})
	}
}

// repack replaces the body. Before the first packed body it stores the labels.
func (o *Object) repack(raw []byte, packed *pack.Body, before *Object) {
	if !o.Packed() && o.labels == unlabelled {
		known := unlabelled
		if before != nil && before.Packed() {
			known = before.labels
		}
		o.labels = keepLabels(raw, o.encoding, known)
	}
	last := o.body.Swap(packed)
	if last.How == nil {
		o.lease.Recycle(last.Data)
	}
}

// Newest returns a value that changes when the object's kind gets another dictionary.
// Objects that were settled before can then be settled again.
func (p *Packer) Newest(o *Object) any { return p.newest(o) }

// newest returns the newest dictionary of an object's kind, or nil.
func (p *Packer) newest(o *Object) *pack.Dictionary {
	if t := p.trainer(o); t != nil {
		return t.Dictionary()
	}
	return nil
}

// Dictionaries returns the number of kinds that have a dictionary, and the bytes that
// dictionaries and samples take, of all packers that share them. Dictionaries that only
// older objects still use are counted until they are freed.
func (p *Packer) Dictionaries() (n, bytes int) {
	return p.trainers.Count(), int(p.trainers.Bytes())
}

// DictionaryBytes returns the bytes that [Packer.Dictionaries] returns, without counting
// the kinds.
func (p *Packer) DictionaryBytes() int64 { return p.trainers.Bytes() }
