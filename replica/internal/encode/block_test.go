// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
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
