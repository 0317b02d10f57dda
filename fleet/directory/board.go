// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"sync"

	"github.com/watershed-project/watershed/fleet"
)

// board is what several directories report to one follower.
type board struct {
	// changed receives a value after a change of what mu guards.
	changed chan struct{}

	// mu guards the parts, and the fields of the types that contain a board.
	mu sync.Mutex
}

// part is what one directory has reported.
type part struct {
	entries          []fleet.Entry // of its last report
	reported, failed bool
	err              error // why it has failed
}

func newBoard() board { return board{changed: make(chan struct{}, 1)} }

// set makes a change and wakes the follower.
func (b *board) set(change func()) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// follow follows a directory until ctx ends, and records what it reports.
func (b *board) follow(ctx context.Context, d fleet.Directory, p *part) {
	err := d.Follow(ctx, func(entries []fleet.Entry) {
		b.set(func() { p.entries, p.reported = entries, true })
	})
	if err != nil {
		b.set(func() { p.failed, p.err = true, err })
	}
}
