// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

func TestParseNote(t *testing.T) {
	user := digestOf("ann")
	valid := `{"cluster":"one","user":"` + user + `","resource":"pods","version":7,` +
		`"objects":[{"key":"n/a","uid":"1","kind":3,"version":"6"}]}`
	n, err := ParseNote([]byte(valid))
	expect.NoError(t, err)
	expect.Equal(t, fmt.Sprint(*n), fmt.Sprint(Note{Cluster: "one", User: user, Resource: "pods", Version: 7,
		Objects: []noteChange{{"n/a", "1", moved, "6"}}}))
	for _, invalid := range []string{
		"", "null", "[]", "{}", "\x00", valid[1:], valid + "x",
		strings.Replace(valid, user, "", 1), strings.Replace(valid, user, "ann", 1),
		strings.Replace(valid, user, user+"00", 1), strings.Replace(valid, `"pods"`, `""`, 1),
		strings.Replace(valid, `"kind":3`, `"kind":4`, 1), strings.Replace(valid, `"kind":3`, `"kind":-1`, 1),
		strings.Replace(valid, "n/a", "", 1), strings.Replace(valid, "n/a", strings.Repeat("x", maxNoteText+1), 1),
		strings.Replace(valid, `"6"`, `"`+strings.Repeat("6", maxNoteText+1)+`"`, 1),
		strings.Replace(valid, `:7`, `:-7`, 1), strings.Replace(valid, `:7`, `:1e400`, 1),
		`{"cluster":"one","user":"` + user + `","resource":"pods"}`,
		strings.Repeat(" ", MaxNote) + valid,
	} {
		if _, err := ParseNote([]byte(invalid)); !errors.Is(err, ErrInvalidNote) {
			t.Errorf("%.200q: %v", invalid, err)
		}
	}
}
