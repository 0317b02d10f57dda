// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package state

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestOpenOwner_othersHaveTheToken does not use a token that others can read or have written.
func TestOpenOwner_othersHaveTheToken(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes do not show which users can read a file")
	}
	s := &Dir{Path: t.TempDir()}
	created := 0
	newToken := func() string {
		created++
		return fmt.Sprint("token ", created)
	}
	token, err := s.OpenOwner(newToken)
	expect.NoError(t, err)
	again, err := s.OpenOwner(newToken)
	expect.NoError(t, err)
	expect.Equal(t, again, token)
	for _, mode := range []os.FileMode{0o644, 0o620, 0o666} {
		expect.NoError(t, os.Chmod(s.ownerFile(), mode))
		if got, err := s.OpenOwner(newToken); err == nil || got != "" ||
			!strings.Contains(err.Error(), "remove the file") {
			t.Errorf("mode %#o: %q, %v", mode, got, err)
		}
	}
	expect.NoError(t, os.Remove(s.ownerFile()))
	other, err := s.OpenOwner(newToken)
	expect.NoError(t, err)
	if other == token {
		t.Error("the new token is the old one")
	}
}
