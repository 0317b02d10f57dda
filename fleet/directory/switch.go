// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/watershed-project/watershed/fleet"
)

// SwitchOptions tune a [Switch]. The zero value, and nil, are the defaults.
type SwitchOptions struct {
	// Logger receives a line when a directory fails before it has replaced another one.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Switch is a [fleet.Directory] that reports the clusters of another directory, which can be
// replaced while the Switch is followed. The clusters of the previous directory stay until the
// next one has reported its own: a cluster that both have is not removed in between. A Switch
// also adds labels to clusters. All methods are safe for concurrent use, except that Follow runs
// once at a time.
type Switch struct {
	opts  SwitchOptions
	board board

	// The board's mu guards the fields below.
	used   fleet.Directory
	labels map[string]map[string]string
}

// NewSwitch returns a switch that begins with a directory. A nil opts means the defaults.
func NewSwitch(d fleet.Directory, opts *SwitchOptions) *Switch {
	s := &Switch{used: d, board: newBoard()}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	return s
}

// Use replaces the directory.
func (s *Switch) Use(d fleet.Directory) {
	s.board.set(func() { s.used = d })
}

// Label replaces the labels that are added to those that the directory reports, by the names of
// the clusters. They have precedence.
func (s *Switch) Label(labels map[string]map[string]string) {
	s.board.set(func() { s.labels = labels })
}

// String returns the name of the directory for log lines and errors.
func (s *Switch) String() string {
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	return nameOf(s.used)
}

// position is a directory that a Switch follows.
type position struct {
	part
	directory fleet.Directory
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// begin begins to follow a directory.
func (s *Switch) begin(ctx context.Context, d fleet.Directory) *position {
	p := &position{directory: d}
	ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(func() { s.board.follow(ctx, d, &p.part) })
	return p
}

// end ceases to follow the directory, and waits for it.
func (p *position) end() {
	if p != nil {
		p.cancel()
		p.running.Wait()
	}
}

// Follow reports the clusters. It returns the error of the directory that is in use. See
// [fleet.Directory].
func (s *Switch) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	s.board.mu.Lock()
	used := s.used
	s.board.mu.Unlock()
	// next is the one that is to replace now, nil if there is none.
	now, next := s.begin(ctx, used), (*position)(nil)
	defer func() {
		next.end()
		now.end()
	}()
	n := notifier{notify: notify}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.board.changed:
		}
		s.board.mu.Lock()
		used = s.used
		replaces := next != nil && next.reported
		failed := next != nil && next.failed
		s.board.mu.Unlock()
		switch {
		case failed && next.directory == used:
			s.opts.Logger.Error("cannot use another source of clusters; they stay as they are", "source", nameOf(next.directory), "err", next.err)
			next.end()
			next = nil
			s.board.set(func() {
				if s.used == used {
					s.used = now.directory
				}
			})
		case next != nil && next.directory != used:
			next.end() // it was replaced before it has reported
			next = nil
			s.board.set(func() {})
		case next == nil && now.directory != used:
			next = s.begin(ctx, used)
		case replaces:
			now.end()
			now, next = next, nil
		}
		entries, reported, err := s.take(now)
		if err != nil {
			return err
		}
		if reported {
			n.update(entries)
		}
	}
}

// take returns copies of the entries that a directory has reported, with the labels of the
// Switch.
func (s *Switch) take(p *position) (entries []fleet.Entry, reported bool, err error) {
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	if p.err != nil {
		return nil, false, fmt.Errorf("%s: %w", nameOf(p.directory), p.err)
	}
	entries = slices.Clone(p.entries)
	for i := range entries {
		entries[i].Labels = joinLabels(entries[i].Labels, maps.Clone(s.labels[entries[i].Name]))
	}
	return entries, p.reported, nil
}
