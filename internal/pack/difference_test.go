// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPatch_isSmall(t *testing.T) {
	text := strings.Repeat("all the fields of a pod, one after the other; ", 40)
	for _, tt := range []struct {
		name, base, raw string
		size            int
	}{
		{"nothing", "", "", 1},
		{"the same", text, text, 2},
		{"only new", "", "new", 6},
		{"the beginning", text, text[:100], 1},
		{"a value of the same length", "version 1234 " + text, "version 1235 " + text, 5},
		{"a longer value", text + "10.1.2.3" + text[1:], text + "10.100.2.3" + text[1:], 8},
		{"a shorter value", text + "10.100.2.3" + text[1:], text + "10.1.2.3" + text[1:], 6},
		{"more at the end", text, text + "end", 7},
	} {
		difference, ok := appendDifference([]byte("x"), []byte(tt.base), []byte(tt.raw), 1000)
		if !ok || len(difference)-1 != tt.size {
			t.Errorf("%s takes %d bytes, not %d, %v", tt.name, len(difference)-1, tt.size, ok)
		}
		got, err := appendPatched([]byte("y"), []byte(tt.base), difference[1:], len(tt.raw))
		if err != nil || string(got) != "y"+tt.raw {
			t.Errorf("%s: %q comes back as %q, %v", tt.name, tt.raw, got, err)
		}
	}
}

func TestPatch_respectsItsLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	base := noise(3000)
	if d, ok := appendDifference(nil, base, noise(3000), 10_000); ok {
		t.Errorf("two objects that have nothing in common have a difference of %d bytes", len(d))
	}
	raw := append(bytes.Clone(base[:1000]), append(noise(100), base[1100:]...)...)
	d, ok := appendDifference(nil, base, raw, 200)
	if !ok {
		t.Fatal("no difference")
	}
	if _, ok := appendDifference(nil, base, raw, len(d)); !ok {
		t.Error("the difference takes more than its size")
	}
	if _, ok := appendDifference([]byte("before"), base, raw, len(d)-1); ok {
		t.Error("the difference may take less than its size")
	}
	if _, err := appendPatched(nil, base, d, len(raw)-1); err == nil {
		t.Error("a difference wrote more than allowed")
	}
}

func TestPatch_anythingComesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pieces := []string{
		"\xff", "\x00", "abc", "58cc0e2f-6a7b-4c9d-ae1f-2a3b4c5d6e7f", strings.Repeat("c", 17), "10.0.0.1",
		"a longer piece of text ",
	}
	mix := func() (b []byte) {
		for range rng.IntN(12) {
			b = append(b, pieces[rng.IntN(len(pieces))]...)
		}
		return b
	}
	for range 20_000 {
		base := mix()
		raw := mix()
		if n := min(len(base), len(raw)); rng.IntN(2) == 0 && n > 0 {
			at := rng.IntN(n)
			raw = append(append(bytes.Clone(base[:at]), raw...), base[at:]...)
		}
		d, ok := appendDifference(nil, base, raw, 10_000)
		if !ok {
			t.Fatalf("%q and %q have no difference", base, raw)
		}
		got, err := appendPatched(nil, base, d, len(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%q from %q comes back as %q, %v", raw, base, got, err)
		}
	}
}

// FuzzPatch patches with bytes that are not a difference. It must not panic.
func FuzzPatch(f *testing.F) {
	f.Add([]byte("a base of some bytes"), []byte("\x05\x04xy\x03"))
	f.Add([]byte("short"), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, base, difference []byte) {
		if got, err := appendPatched(nil, base, difference, 100); err == nil && len(got) > 100 {
			t.Errorf("%d bytes, want at most 100", len(got))
		}
	})
}
