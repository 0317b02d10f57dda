// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Static is a [Directory] of what the program says, which may change: for programs
// that have their own source of truth. The zero value has not been said anything
// and tells nothing. All methods are safe for concurrent use.
type Static struct {
	// mu guards what follows.
	mu      sync.Mutex
	entries []Entry
	set     bool
	changed chan struct{} // closed by the next Set; nil if nobody waits
}

// NewStatic returns the directory of some clusters. See [Static.Set].
func NewStatic(entries ...Entry) (*Static, error) {
	s := &Static{}
	if err := s.Set(entries...); err != nil {
		return nil, err
	}
	return s, nil
}

// Set makes entries all the clusters there are. Each has a name of its own and
// either a Config or an Err. If Access is empty, it is made from Config, in which
// functions and the content of files do not count.
func (s *Static) Set(entries ...Entry) error {
	own := copyEntries(entries)
	names := make(map[string]bool, len(own))
	for i := range own {
		e := &own[i]
		if err := checkName(e.Name); err != nil {
			return err
		}
		if names[e.Name] {
			return fmt.Errorf("cluster %s is there twice", e.Name)
		}
		names[e.Name] = true
		if (e.Config == nil) == (e.Err == nil) {
			return fmt.Errorf("cluster %s: neither or both of a configuration and an error", e.Name)
		}
		if e.Config != nil && e.Access == "" {
			var err error
			if e.Access, err = accessOf(e.Config); err != nil {
				return fmt.Errorf("cluster %s: %w", e.Name, err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.set = own, true
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return nil
}

// Follow tells what was set last. See [Directory].
func (s *Static) Follow(ctx context.Context, tell func([]Entry)) error {
	told := teller{tell: tell}
	for {
		s.mu.Lock()
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		entries, set, changed := copyEntries(s.entries), s.set, s.changed
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if set {
			told.update(entries)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// checkName finds names that no cluster may have.
func checkName(name string) error {
	if name == "" {
		return errors.New("a cluster has no name")
	}
	if strings.Contains(name, "/") {
		return fmt.Errorf("cluster %q has a slash in its name", name)
	}
	return nil
}
