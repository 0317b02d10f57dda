// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// newObject returns an object with 400 random letters, which are the same for a seed, and a text.
func newObject(tb testing.TB, name string, version, seed uint64, text string) *wire.Object {
	tb.Helper()
	letters, r := make([]byte, 400), rand.New(rand.NewPCG(seed, 5))
	for i := range letters {
		letters[i] = 'a' + byte(r.IntN(26))
	}
	o, err := wire.NewObject(fmt.Appendf(nil,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","resourceVersion":"%d"},"data":{"text":%q,"more":%q}}`,
		name, version, letters, text), wire.JSON, nil)
	must(tb, err)
	return o
}

// differences is a log of one mirror that a test writes and reads.
type differences struct {
	t       *testing.T
	packer  *objectpack.Packer
	encoder *Encoder
	decoder Decoder
	Restorer
}

func newDifferences(t *testing.T, sealed bool) *differences {
	t.Helper()
	id := identify("configmaps")
	l := &differences{t: t, packer: objectpack.NewPacker(0)}
	for i := range uint64(300) {
		l.packer.Pack(newObject(t, fmt.Sprint("sample-", i), i, 1000+i, "x"), nil)
	}
	l.encoder = NewEncoder(id, KindOf(id), l.packer)
	all := NewDictionaries(&Files{}, filepath.Join(t.TempDir(), "dictionaries"), LocalKeys{newSeal(make([]byte, 32))},
		func() {})
	l.encoder.Ready = func(d *pack.Dictionary) bool {
		must(t, all.Write(d, sealed))
		return true
	}
	if sealed {
		l.encoder.Seal = newSeal(make([]byte, 32))
		l.decoder.Seal = l.encoder.Seal
	}
	l.Restorer = Restorer{Digest: DigestOf(id), Kind: KindOf(id), Dictionaries: all}
	return l
}

// write returns a frame with objects, and the sizes of their items.
func (l *differences) write(state bool, objects ...*wire.Object) (payload []byte, sizes []int) {
	l.t.Helper()
	named := len(l.encoder.Sums)
	var items []byte
	l.encoder.Begin()
	for _, o := range objects {
		before := len(items)
		c := QueuedChange{Change: &store.Change[*wire.Object]{
			Type: delta.Updated, Key: o.Key(), New: o, Version: o.Version(),
		}}
		var err error
		items, err = l.encoder.Append(items, c, state)
		must(l.t, err)
		sizes = append(sizes, len(items)-before)
	}
	return append(AppendBatch(nil, keyindex.Head{Version: 1}, l.encoder.Sums[named:], len(objects)), items...), sizes
}

// read compares the objects of a frame with those that were written.
func (l *differences) read(payload []byte, want ...*wire.Object) {
	l.t.Helper()
	_, items, err := l.decoder.Batch(payload)
	must(l.t, err)
	if len(items) != len(want) {
		l.t.Fatalf("%d items instead of %d", len(items), len(want))
	}
	for i := range items {
		o, err := l.Object(&items[i])
		must(l.t, err)
		if !wire.Same(o, want[i]) || !bytes.Equal(o.Bytes(), want[i].Bytes()) {
			l.t.Errorf("%v was read as %v", want[i], o)
		}
	}
}

// TestEncoder_differences writes states of two objects as differences from earlier ones. The first
// difference has its base, the next one refers to it, and one from another base does not. A reader
// of one object finds the base in the frames of that object.
func TestEncoder_differences(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		l := newDifferences(t, sealed)
		unwritten := newObject(t, "a", 1, 1, "first")
		l.packer.Pack(unwritten, nil)
		state := func(name string, version, seed uint64, last *wire.Object) *wire.Object {
			o := newObject(t, name, version, seed, fmt.Sprint("state ", version))
			l.packer.Pack(o, last)
			return o
		}
		a2 := state("a", 2, 1, unwritten)
		a3 := state("a", 3, 1, a2)
		b1 := state("b", 4, 2, nil)
		b2 := state("b", 5, 2, b1)
		a4 := state("a", 6, 3, a3) // it is not similar
		a5 := state("a", 7, 3, a4)
		a6 := state("a", 8, 1, a3) // from the first base again
		frames := [][]*wire.Object{{a2, b1}, {a3, b2}, {a4}, {a5, b2}, {a6}}
		var payloads [][]byte
		var sizes []int
		for _, objects := range frames {
			payload, some := l.write(false, objects...)
			payloads, sizes = append(payloads, payload), append(sizes, some...)
		}
		for i, refers := range []bool{false, false, true, true, false, true, true, false} {
			if got := sizes[i] < 150; got != refers {
				t.Errorf("sealed %v: item %d has %d bytes", sealed, i, sizes[i])
			}
		}
		for i, payload := range payloads {
			l.read(payload, frames[i]...)
		}
		l.decoder = Decoder{Seal: l.decoder.Seal, Only: "shop/b"}
		for i, want := range [][]*wire.Object{{b1}, {b2}, nil, {b2}} {
			l.read(payloads[i], want...)
		}
		// Without the frame before it, a difference is an error.
		l.decoder = Decoder{Seal: l.decoder.Seal, Sums: []*Sum{&l.encoder.Sums[0]}}
		if _, _, err := l.decoder.Batch(payloads[1]); err == nil {
			t.Error("a difference was read without its base")
		}
	}
}

// TestEncoder_settled writes a complete state: a base that several objects share is there once.
func TestEncoder_settled(t *testing.T) {
	l := newDifferences(t, false)
	var objects []*wire.Object
	var last *wire.Object
	for i := range uint64(10) {
		o := newObject(t, fmt.Sprint("item-", i), i+1, i/5, "x")
		l.packer.Settle(o, last)
		objects, last = append(objects, o), o
	}
	payload, sizes := l.write(true, objects[1:]...) // the first base is that of an object that has changed
	for i, size := range sizes {
		if own := i == 0 || i == 4; own != (size > 200) {
			t.Errorf("item %d has %d bytes", i, size)
		}
	}
	l.read(payload, objects[1:]...)
	// A change that follows in the log refers to the base that the state of its key has.
	if payload, sizes = l.write(false, objects[1]); sizes[0] > 150 {
		t.Errorf("the base is there twice: %d bytes", sizes[0])
	}
	l.read(payload, objects[1])
}

// TestEncoder_sealedBase reads an encrypted difference from another base than its own.
func TestEncoder_sealedBase(t *testing.T) {
	l := newDifferences(t, true)
	a1, b1 := newObject(t, "a", 1, 1, "one"), newObject(t, "b", 2, 1, "one")
	l.packer.Pack(a1, nil)
	l.packer.Pack(b1, nil)
	a2 := newObject(t, "a", 3, 1, "two")
	l.packer.Pack(a2, a1)
	first, _ := l.write(false, a1, b1)
	second, _ := l.write(false, a2)
	_, items, err := l.decoder.Batch(first)
	must(t, err)
	l.decoder.bases[a2.Key()] = &items[1]
	_, differing, err := l.decoder.Batch(second)
	must(t, err)
	if o, err := l.Object(&differing[0]); err == nil {
		t.Errorf("%v was made from the base of another object", o)
	}
}
