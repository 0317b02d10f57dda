// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"testing"
)

// TestSeal_boundToTheRecord moves an encrypted body to another key and version.
func TestSeal_boundToTheRecord(t *testing.T) {
	s, id := newSeal(make([]byte, 32)), DigestOf(identify("secrets"))
	sealed := s.Encrypt(nil, []byte("text"), Associated(id, "a/b", 7))
	if text, err := s.Decrypt(sealed, Associated(id, "a/b", 7)); err != nil || string(text) != "text" {
		t.Fatalf("%q, %v", text, err)
	}
	for _, other := range [][]byte{
		Associated(id, "a/c", 7), Associated(id, "a/b", 8), Associated(DigestOf(identify("pods")), "a/b", 7),
	} {
		if _, err := s.Decrypt(sealed, other); err == nil {
			t.Error("the body was opened elsewhere")
		}
	}
}
