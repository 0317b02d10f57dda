// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDigits_takeHalfTheRoom(t *testing.T) {
	run := strings.Repeat("0123456789abcdef", 4)
	uuid := "58cc0e2f-6a7b-4c9d-ae1f-2a3b4c5d6e7f"
	for _, tt := range []struct {
		name, raw string
		size      int
	}{
		{"nothing", "", 0},
		{"text", "registry.example/service", 24},
		{"a run", run, 34},
		{"an odd run", run + "a", 35},
		{"a run in text", "sha256:" + run + "\n", 42},
		{"a run that is short", run[:15] + " ", 16},
		{"a run of the least length", run[:16], 10},
		{"upper case", strings.ToUpper(run[10:16]) + strings.ToUpper(run[10:16]) + strings.ToUpper(run[10:16]), 18},
		{"a run that is too long for one", strings.Repeat(run, 10), 324},
		{"a UUID", uuid, 18},
		{"a UUID in text", "uid: " + uuid + ",", 24},
		{"two UUIDs", uuid + uuid, 36},
		{"a UUID after digits, which take its first ones", run + uuid, 2 + 36 + 28},
		{"no UUID", strings.ReplaceAll(uuid, "e", "g"), 36},
		{"a UUID that is cut off", uuid[:35], 35},
		{"the mark", "\xff", 2},
		{"the mark before digits", "\xff" + run, 36},
	} {
		squeezed := appendSqueezed([]byte("before"), []byte(tt.raw))
		if len(squeezed) != 6+tt.size {
			t.Errorf("%s takes %d bytes, not %d", tt.name, len(squeezed)-6, tt.size)
		}
		got, err := appendExpanded([]byte("x"), squeezed[6:])
		if err != nil || string(got) != "x"+tt.raw {
			t.Errorf("%s: %q comes back as %q, %v", tt.name, tt.raw, got, err)
		}
	}
}

func TestDigits_anythingComesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pieces := []string{
		"\xff", "\x00", "-", "a", "0f", "58cc0e2f-6a7b-4c9d-ae1f-2a3b4c5d6e7f", strings.Repeat("c", 17),
		"58cc0e2f-6a7b-", "text ", "\xff\xff",
	}
	for range 20_000 {
		var raw []byte
		for range rng.IntN(12) {
			raw = append(raw, pieces[rng.IntN(len(pieces))]...)
		}
		got, err := appendExpanded(nil, appendSqueezed(nil, raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%q comes back as %q, %v", raw, got, err)
		}
	}
}

func TestDigits_cutOffAreAnError(t *testing.T) {
	squeezed := appendSqueezed(nil, []byte("58cc0e2f-6a7b-4c9d-ae1f-2a3b4c5d6e7f"+strings.Repeat("ab", 20)))
	for n := range squeezed {
		if _, err := appendExpanded(nil, squeezed[:n]); err == nil && n != 0 && n != 18 {
			t.Errorf("the first %d bytes of %d mean something", n, len(squeezed))
		}
	}
}

func FuzzDigits(f *testing.F) {
	f.Add([]byte("uid 58cc0e2f-6a7b-4c9d-ae1f-2a3b4c5d6e7f \xff 0123456789abcdef0"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 4<<10 {
			t.Skip("longer ones are slow, and no different")
		}
		got, err := appendExpanded(nil, appendSqueezed(nil, raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%q comes back as %q, %v", raw, got, err)
		}
		_, _ = appendExpanded(nil, raw) // it must not panic, whatever the input
	})
}
