// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/watershed-project/watershed/cmd/watershed/internal/statefile"
)

// ownerFile is the file with the token of the owner.
func (s *Dir) ownerFile() string { return filepath.Join(s.Path, "owner.token") }

// Owner returns the token of the owner, "" if there is none.
func (s *Dir) Owner() (string, error) {
	text, err := os.ReadFile(s.ownerFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("state: token of the owner: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// OpenOwner returns the token of the owner, and stores the result of newToken if there is none. The
// caller has locked the directory.
func (s *Dir) OpenOwner(newToken func() string) (string, error) {
	token, err := s.Owner()
	if err != nil {
		return "", err
	}
	if token != "" {
		// Whoever has the token is the owner.
		if err := checkPrivate(s.ownerFile()); err != nil {
			return "", fmt.Errorf("state: token of the owner: %w: remove the file, and a new token is created", err)
		}
		return token, nil
	}
	token = newToken()
	if err := statefile.Replace(s.ownerFile(), []byte(token+"\n")); err != nil {
		return "", fmt.Errorf("state: token of the owner: %w", err)
	}
	return token, nil
}
