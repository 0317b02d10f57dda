// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// objectsOfKind returns objects of 3 KB that have most of their text in common.
func objectsOfKind(tb testing.TB, kind, n int) []*wire.Object {
	tb.Helper()
	k := &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprint("Kind", kind)},
	}
	var text strings.Builder
	for i := range 150 {
		fmt.Fprintf(&text, "%d-%d ", kind, i*i*i*7919)
	}
	objects := make([]*wire.Object, n)
	for i := range objects {
		var err error
		objects[i], err = wire.NewObject(
			fmt.Appendf(nil,
				`{"apiVersion":"example.com/v1","kind":%q,"metadata":{"name":"o-%d"},"spec":{"n":%d,"text":%q}}`,
				k.Kind, i, i*104729, text.String()), wire.JSON, k,
		)
		wiretest.Must(tb, err)
	}
	return objects
}

// packedIn packs new objects of a kind, and returns them and how many were packed.
func packedIn(tb testing.TB, p *objectpack.Packer, kind int) (objects []*wire.Object, packed int) {
	tb.Helper()
	objects = objectsOfKind(tb, kind, 60)
	for _, o := range objects {
		want := string(o.Bytes())
		p.Pack(o, nil)
		if o.Packed() {
			packed++
		}
		p.Settle(o, nil)
		if string(o.Bytes()) != want {
			tb.Fatal("an object changed")
		}
	}
	return objects, packed
}

// TestPacker_limit packs more kinds than there is room for dictionaries.
func TestPacker_limit(t *testing.T) {
	const limit = 4 << 20
	p := objectpack.NewPacker(limit)
	with := 0
	var all [][]*wire.Object
	for kind := range 100 {
		objects, packed := packedIn(t, p, kind)
		all = append(all, objects)
		if packed > 0 {
			with++
		}
		if bytes := p.DictionaryBytes(); bytes > limit {
			t.Fatalf("dictionaries and samples take %d bytes", bytes)
		}
	}
	n, bytes := 0, p.DictionaryBytes()
	for _, objects := range all {
		if d, _ := p.Newest(objects[0]).(*pack.Dictionary); d != nil {
			n++
		}
	}
	t.Logf("%d kinds have a dictionary, %d bytes", n, bytes)
	if n != with || with < 10 || with > 40 || bytes < limit/2 {
		t.Errorf("%d kinds were packed, %d have a dictionary, %d bytes", with, n, bytes)
	}
	if _, packed := packedIn(t, p, 0); packed == 0 {
		t.Error("a kind that has a dictionary is not packed any more")
	}
	runtime.KeepAlive(all)
}

// TestPacker_forgetsKinds packs objects of a thousand kinds, each in a packer that is not
// used any more after that.
func TestPacker_forgetsKinds(t *testing.T) {
	kinds := 1000
	switch {
	case wiretest.Race:
		kinds = 20
	case testing.Short():
		kinds = 100
	}
	const limit = 4 << 20
	p := objectpack.NewPacker(limit)
	kept := p.Fork()
	objects, _ := packedIn(t, kept, -1)
	one := p.DictionaryBytes()
	for kind := range kinds {
		fork := p.Fork()
		_, packed := packedIn(t, fork, kind)
		if packed == 0 { // the garbage collector has not run for a while
			wiretest.Until(t, func() bool {
				runtime.GC()
				_, packed := packedIn(t, fork, kind)
				return packed > 0
			})
		}
	}
	wiretest.Until(t, func() bool {
		runtime.GC()
		return p.DictionaryBytes() == one
	})
	if _, packed := packedIn(t, p.Fork(), -1); packed != 60 {
		t.Errorf("%d objects were packed with the dictionary of another packer, want 60", packed)
	}
	runtime.KeepAlive(objects)
	runtime.KeepAlive(kept)
}
