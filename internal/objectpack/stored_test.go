// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack_test

import (
	"bytes"
	"maps"
	"testing"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

func TestRestore_isTheSameObject(t *testing.T) {
	for _, e := range wiretest.Encodings {
		p := objectpack.NewPacker(0)
		var objects []*wire.Object
		for i := range 40 {
			objects = append(objects, wiretest.PodObject(t, e, i))
			p.Pack(objects[i], nil)
		}
		if !objectpack.Train(p, objects[0]) {
			t.Fatal("there is no dictionary")
		}
		raw, stored := wiretest.PodObject(t, e, 100), wiretest.PodObject(t, e, 101)
		fast, dense := wiretest.PodObject(t, e, 102), wiretest.PodObject(t, e, 103)
		p.Pack(fast, nil)
		p.Settle(dense, nil)
		differing := wiretest.PodObject(t, e, 102)
		p.Pack(differing, fast)
		prepared := wiretest.PodObject(t, e, 102)
		var none *objectpack.Packer
		forms := map[*wire.Object]objectpack.Stored{
			differing: p.Stored(differing, nil),
			raw:       none.Stored(raw, nil),
			stored:    p.Stored(stored, nil),
			fast:      none.Stored(fast, nil),
			dense:     p.Stored(dense, nil),
			prepared:  p.Stored(prepared, p.Prepare(prepared, fast.Cell().Body.Load())),
		}
		if stored.Packed() || forms[stored].How == nil || forms[raw].How != nil ||
			!forms[fast].Labelled || !objectpack.Dense(dense) {
			t.Fatal("the objects are not in the expected forms")
		}
		for _, o := range []*wire.Object{differing, prepared} {
			if s := forms[o]; !bytes.Equal(s.How.Base(), forms[fast].Data) || len(s.Data) > 100 {
				t.Errorf("%v is not stored as a difference", o)
			}
		}
		if prepared.Packed() {
			t.Error("an object was packed that was only prepared")
		}
		lazy := wiretest.PodObject(t, e, 105)
		forms[lazy] = p.Stored(lazy, nil)
		for o, s := range forms {
			s.Lazy = o == lazy
			if s.How != nil {
				parsed, err := pack.ParseDictionary(s.How.Dictionary().Bytes())
				wiretest.Must(t, err)
				if parsed.Sum() != s.How.Dictionary().Sum() {
					t.Error("the parsed dictionary has another hash")
				}
				if base := s.How.Base(); base != nil {
					s.How = parsed.From(base)
				} else {
					s.How = parsed.Alone()
				}
			}
			again, err := objectpack.Restore(wiretest.PodKind, e, o.Key(), o.Version(), s)
			wiretest.Must(t, err)
			if !wire.Same(o, again) || again.Namespace() != o.Namespace() || again.Name() != o.Name() ||
				!bytes.Equal(o.Bytes(), again.Bytes()) {
				t.Errorf("%v was restored as %v", o, again)
			}
			if !maps.Equal(wiretest.LabelsOf(o), wiretest.LabelsOf(again)) || again.Packed() != (s.How != nil) {
				t.Errorf("%v: labels %v, packed %v", again, wiretest.LabelsOf(again), again.Packed())
			}
		}
	}
}

func TestRestore_refusesDamage(t *testing.T) {
	p := objectpack.NewPacker(0)
	o := wiretest.PodObject(t, wire.Protobuf, 0)
	for i := range 40 {
		p.Pack(wiretest.PodObject(t, wire.Protobuf, i), nil)
	}
	objectpack.Train(p, o)
	p.Pack(o, nil)
	for name, change := range map[string]func(*objectpack.Stored){
		"data":      func(s *objectpack.Stored) { s.Data = nil },
		"form":      func(s *objectpack.Stored) { s.Data = append([]byte{'?'}, s.Data[1:]...) },
		"base":      func(s *objectpack.Stored) { s.How = s.How.Dictionary().From(s.Data) },
		"truncated": func(s *objectpack.Stored) { s.Data, s.Labelled = s.Data[:len(s.Data)/2], false },
	} {
		s := p.Stored(o, nil)
		change(&s)
		if _, err := objectpack.Restore(wiretest.PodKind, wire.Protobuf, o.Key(), o.Version(), s); err == nil {
			t.Errorf("%s: damaged data was restored", name)
		}
	}
	// Labels that are not in the stored form are read from the data.
	s := p.Stored(o, nil)
	s.Labels = s.Labels[:len(s.Labels)-1]
	again, err := objectpack.Restore(wiretest.PodKind, wire.Protobuf, o.Key(), o.Version(), s)
	wiretest.Must(t, err)
	if !maps.Equal(wiretest.LabelsOf(o), wiretest.LabelsOf(again)) {
		t.Errorf("labels %v", wiretest.LabelsOf(again))
	}
	for _, b := range [][]byte{nil, {200}, {5, 1}, {0}, append([]byte{16}, make([]byte, 100)...)} {
		if _, err := pack.ParseDictionary(b); err == nil {
			t.Errorf("%v was parsed as a dictionary", b)
		}
	}
}
