// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"fmt"
	"sync"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
)

// Static is a [fleet.Directory] of clusters that the program sets, for programs that
// have a list of clusters of their own. The zero value reports nothing until
// [Static.Set] is called. All methods are safe for concurrent use.
type Static struct {
	changed timer.Broadcast // sent to by Set

	// mu guards the fields below.
	mu      sync.Mutex
	entries []fleet.Entry
	set     bool
}

// NewStatic returns a directory of these clusters. See [Static.Set].
func NewStatic(entries ...fleet.Entry) (*Static, error) {
	s := &Static{}
	if err := s.Set(entries...); err != nil {
		return nil, err
	}
	return s, nil
}

// Set replaces all clusters. Each entry needs a distinct name and either a Config or an
// Err. An empty Access is set to [fleet.Access] of the Config. Set copies the entries.
func (s *Static) Set(entries ...fleet.Entry) error {
	own := copyEntries(entries)
	names := make(map[string]bool, len(own))
	for i := range own {
		e := &own[i]
		if err := fleet.ValidateName(e.Name); err != nil {
			return err
		}
		if names[e.Name] {
			return fmt.Errorf("cluster %s: two entries have this name", e.Name)
		}
		names[e.Name] = true
		if (e.Config == nil) == (e.Err == nil) {
			return fmt.Errorf("cluster %s: the entry must have either a configuration or an error", e.Name)
		}
		if e.Config != nil && e.Access == "" {
			var err error
			if e.Access, err = fleet.Access(e.Config); err != nil {
				return fmt.Errorf("cluster %s: %w", e.Name, err)
			}
		}
	}
	s.mu.Lock()
	s.entries, s.set = own, true
	s.mu.Unlock()
	s.changed.Send()
	return nil
}

// String returns a short name of the directory for log lines and errors.
func (s *Static) String() string { return "static" }

// Follow reports the clusters that were set last. See [fleet.Directory].
func (s *Static) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	n := notifier{notify: notify}
	for {
		changed := s.changed.Wait()
		s.mu.Lock()
		entries, set := copyEntries(s.entries), s.set
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if set {
			n.update(entries)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
