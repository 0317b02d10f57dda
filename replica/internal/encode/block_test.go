// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

// Bytes are unpacked as they were packed, whole and in pieces, of any length and whether
// or not they can be compressed.
func TestText_pack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 3*PieceBytes+17)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	prose := []byte(strings.Repeat(`{"metadata":{"name":"pod-0","namespace":"shop"}},`, 5000))
	for _, all := range [][]byte{noise, prose} {
		for _, n := range []int{0, 1, 100, PieceBytes - 1, PieceBytes, PieceBytes + 1, 2 * PieceBytes, len(all)} {
			raw := all[:min(n, len(all))]
			var packed text
			packed.pack(raw)
			if packed.plain != (n > 0 && (&all[0] == &noise[0] || n < 10)) {
				t.Errorf("%d bytes that begin with %.20q: plain is %t", n, raw, packed.plain)
			}
			whole, release := packed.open()
			if !bytes.Equal(whole, raw) {
				t.Errorf("%d bytes that begin with %.20q are others when opened", n, raw)
			}
			release()
			var out writes
			if err := packed.writeTo(&out); err != nil || !bytes.Equal(out.all, raw) {
				t.Errorf("%d bytes that begin with %.20q are others when written: %v", n, raw, err)
			}
			if !packed.plain && out.most > PieceBytes {
				t.Errorf("%d bytes are written %d at a time, want %d at most", n, out.most, PieceBytes)
			}
		}
	}
}

// writes records the written bytes, and the size of the largest write.
type writes struct {
	all  []byte
	most int
}

func (w *writes) Write(b []byte) (int, error) {
	w.all = append(w.all, b...)
	w.most = max(w.most, len(b))
	return len(b), nil
}

// The bytes of a block are kept when they are requested for the second time, in protobuf or for
// gzip at once. When an object of the block changes, they are kept at the first request.
func TestBlocks_keepWhatIsReadAgain(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pods := []*wire.Object{noisyPod(t, random, "web-1", 1), noisyPod(t, random, "web-2", 1)}
	source := Source{"c", schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	blocks := NewBlocks(1<<20, slog.New(slog.DiscardHandler))
	kept := func(f BlockForm) bool { return blocks.get(source, pods).texts[f] != nil }
	read := func(f BlockForm, zip bool) []byte {
		part, err := blocks.Part(source, pods, f, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if zip {
			return part.Segment().Bytes()
		}
		if err := part.WriteBlock(&out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	plain, events := BlockForm{}, BlockForm{Events: true}
	for _, f := range []BlockForm{plain, events} {
		first := read(f, false)
		if kept(f) {
			t.Errorf("%+v: kept after one request", f)
		}
		second := read(f, false)
		if !kept(f) {
			t.Errorf("%+v: not kept after two requests", f)
		}
		if third := read(f, false); !bytes.Equal(first, second) || !bytes.Equal(second, third) {
			t.Errorf("%+v: bytes differ", f)
		}
	}
	if read(BlockForm{Form: Form{Encoding: Protobuf}}, false); !kept(BlockForm{Form: Form{Encoding: Protobuf}}) {
		t.Error("protobuf: not kept")
	}
	if pods[1] = noisyPod(t, random, "web-2", 2); kept(plain) {
		t.Fatal("the block of the earlier objects was found")
	}
	if read(plain, false); !kept(plain) {
		t.Error("not kept, although the block before was")
	}
	cluster := BlockForm{Form: Form{Cluster: "c"}}
	zipped := read(cluster, true)
	if !kept(cluster) || !bytes.Equal(zipped, read(cluster, true)) {
		t.Error("gzip: not kept")
	}
}
