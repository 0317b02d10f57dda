// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// state is the folder with what other runs need to know: the authority that clients
// trust, and the address of the server that runs.
type state struct{ dir string }

// stateFlag adds the flag that names the folder.
func stateFlag(cmd *cobra.Command, s *state) {
	cmd.Flags().StringVar(&s.dir, "state-dir", "", "the `folder` with certificates and the server's address (default $XDG_STATE_HOME/watershed, else ~/.local/state/watershed)")
}

// open finds the folder, and makes it if it is not there. Nobody else may look into
// it.
func (s *state) open() error {
	if err := s.find(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// find fills in the default.
func (s *state) find() error {
	if s.dir != "" {
		return nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("state: %w: name a folder with --state-dir", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	s.dir = filepath.Join(base, "watershed")
	return nil
}

func (s *state) addressFile() string { return filepath.Join(s.dir, "address") }

// writeAddress says where the server listens. The returned function takes that back,
// unless another server has come since.
func (s *state) writeAddress(address string) (remove func(), err error) {
	if err := replaceFile(s.addressFile(), []byte(address+"\n")); err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	return func() {
		if now, err := s.readAddress(); err == nil && now == address {
			_ = os.Remove(s.addressFile())
		}
	}, nil
}

var errNotServing = errors.New("no server runs: start one with watershed serve, and the same --state-dir")

// readAddress is where a server listens.
func (s *state) readAddress() (string, error) {
	text, err := os.ReadFile(s.addressFile())
	if errors.Is(err, os.ErrNotExist) {
		return "", errNotServing
	}
	if err != nil {
		return "", fmt.Errorf("address: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// replaceFile writes a file of the user's own in one step: it is there as a whole or
// as it was.
func replaceFile(path string, content []byte) error {
	name, err := writeBeside(path, content)
	if err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		_ = os.Remove(name)
		return err
	}
	return nil
}

// writeBeside writes a file with a name of its own in the folder of path.
func writeBeside(path string, content []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
