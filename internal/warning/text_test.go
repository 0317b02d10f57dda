// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package warning

import (
	"slices"
	"strings"
	"testing"
)

// Texts from clusters neither make headers long nor break them.
func TestAdd_isBounded(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                          `299 - "plain"`,
		"a \"b\" \\c\r\nd\te\x00\x7f":    `299 - "a \"b\" \\c  d e  "`,
		"Größe":                          `299 - "Größe"`,
		"\xff\xfe":                       `299 - "  "`,
		strings.Repeat("x", 256):         `299 - "` + strings.Repeat("x", 256) + `"`,
		strings.Repeat("x", 257):         `299 - "` + strings.Repeat("x", 253) + `..."`,
		strings.Repeat("x", 60<<10):      `299 - "` + strings.Repeat("x", 253) + `..."`,
		strings.Repeat("ß", 200):         `299 - "` + strings.Repeat("ß", 126) + `..."`,
		strings.Repeat("\u2028", 60<<10): `299 - "` + strings.Repeat(" ", 253) + `..."`,
	} {
		if got := value(text); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
	many := slices.Repeat([]string{strings.Repeat("c", 300)}, 1000)
	if got := Names(many); len(got) > maxNames*(MaxName+2)+20 || !strings.HasSuffix(got, " and 992 more") {
		t.Errorf("a thousand names: %q", got)
	}
	if got := Names([]string{"a", "b"}); got != "a, b" {
		t.Errorf("two names: %q", got)
	}
}
