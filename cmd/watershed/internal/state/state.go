// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package state is the state directory of watershed serve: the authority that clients trust, the token
// of the owner, and what the running server tells other commands. A running server locks the directory.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/statefile"
)

// Dir is the directory with what other runs need: the authority that clients trust, and
// the address of the running server. One server at a time uses it.
type Dir struct {
	// Path is "" for the default, until [Dir.Find] or [Dir.Open] sets it.
	Path string
}

// Usage is the help text of the flag that names the directory.
const Usage = "the `directory` with certificates and the address of the one server that uses it (default " +
	"$XDG_STATE_HOME/watershed, else ~/.local/state/watershed)"

// variable is the environment variable of the flag that names the directory.
const variable = "WATERSHED_STATE_DIR"

// AddFlag adds the flag that names the directory.
func AddFlag(cmd *cobra.Command, s *Dir) {
	cmd.Flags().StringVar(&s.Path, "state-dir", os.Getenv(variable), Usage)
	cmd.Flags().Lookup("state-dir").DefValue = ""
}

// Open finds the directory, and creates it if necessary, for its owner only.
func (s *Dir) Open() error {
	if err := s.Find(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Path, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// Find sets the default.
func (s *Dir) Find() error {
	if s.Path != "" {
		return nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("state: %w: name a directory with --state-dir", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	s.Path = filepath.Join(base, "watershed")
	return nil
}

// AuthorityFile returns the path of the file with the certificate authority and its key.
func (s *Dir) AuthorityFile() string { return filepath.Join(s.Path, "authority.pem") }

func (s *Dir) serverFile() string { return filepath.Join(s.Path, "server.json") }

// Server is what a running server announces to other commands.
type Server struct {
	Address string `json:"address"`
	// Kubeconfig are the files whose contexts the server mirrors. It is empty if the
	// server has other sources of clusters only.
	Kubeconfig []string `json:"kubeconfig,omitempty"`
	// Contexts are the contexts of these files that it mirrors, nil if it mirrors all.
	Contexts []string `json:"contexts,omitempty"`
	// Home is the cluster that authenticates requests below /fleet, "" if there is none.
	Home string `json:"home,omitempty"`
	// Issuer is true if OpenID Connect authenticates requests below /fleet.
	Issuer bool `json:"issuer,omitempty"`
	// Configuration is nil if the server has no configuration file.
	Configuration *Configuration `json:"configuration,omitempty"`
	// OtherAuthority is true if the server's certificate is from files, and not from the
	// authority of the state directory.
	OtherAuthority bool `json:"otherAuthority,omitempty"`
}

// Configuration is the state of a server's configuration file.
type Configuration struct {
	// File is the path, and Loaded is when its settings took effect.
	File   string    `json:"file"`
	Loaded time.Time `json:"loaded"`
	// Errors are those of the present content, if that is not in effect.
	Errors []string `json:"errors,omitempty"`
	// Restart are the keys whose present values need a restart to take effect.
	Restart []string `json:"restart,omitempty"`
}

// Announce writes what other commands need to know about the server, or replaces it. The caller
// has locked the directory, and calls withdraw before it releases the lock.
func (s *Dir) Announce(v Server) (withdraw func(), err error) {
	text, err := json.Marshal(v)
	if err == nil {
		err = statefile.Replace(s.serverFile(), append(text, '\n'))
	}
	if err != nil {
		return nil, fmt.Errorf("state: announce the server: %w", err)
	}
	return func() { _ = os.Remove(s.serverFile()) }, nil
}

// ErrNotServing means that no server uses the directory.
var ErrNotServing = errors.New("no server is running on this machine: start one with watershed serve and the same " +
	"--state-dir, or name a server elsewhere with --server or --context")

// Server returns what the running server has announced.
func (s *Dir) Server() (Server, error) {
	var v Server
	text, err := os.ReadFile(s.serverFile())
	if errors.Is(err, os.ErrNotExist) {
		return v, ErrNotServing
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		return v, fmt.Errorf("state: read %s: %w", s.serverFile(), err)
	}
	return v, nil
}
