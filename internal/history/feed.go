// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

var (
	// ErrNotReady means that the first list of a resource is not complete, and that no stored state
	// was loaded.
	ErrNotReady = errors.New("not synced yet")
	// ErrExpired means that a version is too old: its state, or the changes since, are
	// not available any more.
	ErrExpired = fanout.ErrExpired
	// ErrEarlier is the ErrExpired of a version from before the first state of the feed. It is not
	// from before a restore, as far as the feed knows, so the API server may have the changes since.
	ErrEarlier = fmt.Errorf("earlier than the first state: %w", fanout.ErrExpired)
	// ErrFuture means that the copy has not reached a version.
	ErrFuture = errors.New("version is not reached yet")
)

// Feed is one resource of one cluster, for readers that use the versions of its API
// server. It has states that the server had, each at its version, and the changes between
// them in the order of their versions. During a relist the state before it stays; then
// the differences are published at once. All methods are safe for concurrent use.
//
// It costs about 600 bytes. The size of its changes is limited by the window of its log.
type Feed struct {
	resource   *kube.Resource
	connection func() reflector.Status
	log        *fanout.Log[*wire.Object]
	now        atomic.Pointer[Moment]
	files      atomic.Pointer[feedFiles] // nil if the past is not stored
	wanted     atomic.Bool               // a reader has asked before there was a state

	// mu guards the fields below. It is held while a batch is published, and never while
	// a reader waits.
	mu sync.Mutex
	// coverage has the versions after which the log is complete.
	coverage coverage
	// firstRevision is the revision at which the feed first had its newest version. If a change has
	// the version, it is the revision of the first such change. If only a bookmark has the version,
	// it is the revision of the last change before the bookmark.
	firstRevision uint64
	// relisting is set during a relist, and pending are its differences so far.
	relisting bool
	pending   []store.Change[*wire.Object]
	// era has the versions since etcd was restored from a backup. predecessor is the feed
	// of the cluster that this feed's cluster has replaced, until this feed has a state.
	era         era
	predecessor *Feed
	// loaded is the moment of the state in the files, until the feed has that state.
	loaded *Moment
	// waiting are the readers that wait for a version, in no order.
	waiting []*waiter
	closed  bool
}

// waiter is a reader that waits for a version. Woken is closed when the feed has reached
// it, begins a new era, or is closed.
type waiter struct {
	version uint64
	woken   chan struct{}
}

// Moment is a state that a server had.
type Moment struct {
	// State has the objects.
	State watershed.Snapshot[*wire.Object]
	// Version is the server's resourceVersion of the state.
	Version uint64
	// Revision is the position in the feed's log: a cursor there continues from the
	// state.
	Revision uint64
}

// Resource returns the resource of the feed.
func (f *Feed) Resource() kube.Resource { return *f.resource }

// Connection returns the status of the list or watch that reads the resource.
func (f *Feed) Connection() reflector.Status { return f.connection() }

// Now returns the newest state. The error is [ErrNotReady].
func (f *Feed) Now() (*Moment, error) {
	if m := f.now.Load(); m != nil {
		return m, nil
	}
	f.wanted.Store(true)
	return nil, fmt.Errorf("%s: %w", f.resource.GroupResource(), ErrNotReady)
}

// Wait waits until the state has reached a version, and returns it. If ctx ends or the feed is
// closed before, it returns the newest state and [ErrFuture]. Without a state it does not wait.
func (f *Feed) Wait(ctx context.Context, version uint64) (*Moment, error) {
	for {
		f.mu.Lock()
		m := f.now.Load()
		if m == nil || m.Version >= version {
			f.mu.Unlock()
			return f.Now()
		}
		w := f.waitLocked(version)
		f.mu.Unlock()
		if !f.woken(ctx, w) {
			return m, fmt.Errorf("%s at version %d: %w", f.resource.GroupResource(), version, ErrFuture)
		}
	}
}

// waitLocked adds a reader that waits for a version. It returns nil if the feed is
// closed.
func (f *Feed) waitLocked(version uint64) *waiter {
	if f.closed {
		return nil
	}
	w := &waiter{version: version, woken: make(chan struct{})}
	f.waiting = append(f.waiting, w)
	return w
}

// woken waits until a reader is woken. It returns false if ctx ends before, or if w is
// nil because the feed is closed.
func (f *Feed) woken(ctx context.Context, w *waiter) bool {
	if w == nil {
		return false
	}
	select {
	case <-w.woken:
		return true
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		f.waiting = slices.DeleteFunc(f.waiting, func(one *waiter) bool { return one == w })
		return false
	}
}

// Resume returns the revision after which a reader continues that has seen everything up
// to a version, see [fanout.Log.Since]. If the copy has not reached the version, Resume
// waits for it: earlier changes do not concern the reader. It returns [ErrExpired], or
// [ErrEarlier], which is one, if changes after the version may be missing, and then oldest is
// the first later version that it would accept; [fanout.ErrClosed] if the feed has ended; and
// the cause of ctx.
func (f *Feed) Resume(ctx context.Context, version uint64) (revision, oldest uint64, err error) {
	era, first := uint64(0), true
	for {
		f.mu.Lock()
		now, err := f.Now()
		if err != nil {
			f.mu.Unlock()
			return 0, 0, err
		}
		if first {
			era, first = now.State.Era(), false
		}
		// A future version of one era has no meaning in the next.
		if now.State.Era() != era {
			f.mu.Unlock()
			return 0, now.Version, f.expired(version)
		}
		revision, oldest, err := f.sinceLocked(version, now)
		if !errors.Is(err, ErrFuture) {
			f.mu.Unlock()
			return revision, oldest, err
		}
		w := f.waitLocked(version)
		f.mu.Unlock()
		switch {
		case w == nil:
			return 0, 0, fanout.ErrClosed
		case !f.woken(ctx, w):
			return 0, 0, context.Cause(ctx)
		}
	}
}

// Since is Resume without waiting: the error is [ErrFuture] if the copy has not reached
// the version.
func (f *Feed) Since(version uint64) (revision, oldest uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.Now()
	if err != nil {
		return 0, 0, err
	}
	return f.sinceLocked(version, now)
}

// sinceLocked is Since for the newest state.
func (f *Feed) sinceLocked(version uint64, now *Moment) (revision, oldest uint64, err error) {
	switch {
	case f.era.mayPredateRestore(version, now.Version):
		return 0, max(now.Version, version+1), f.expired(version)
	case version > now.Version:
		return 0, 0, fmt.Errorf("%s after version %d: %w", f.resource.GroupResource(), version, ErrFuture)
	}
	oldest = f.coverage.from(version)
	switch {
	case version < oldest && version < f.coverage.began && time.Now().Before(f.coverage.earlier):
		return 0, oldest, fmt.Errorf("%s after version %d: %w", f.resource.GroupResource(), version, ErrEarlier)
	case version < oldest:
		return 0, oldest, f.expired(version)
	}
	revision, err = f.log.Since(version)
	g := f.coverage.gapAt(version)
	switch {
	case g != nil && g.firstRevision < f.log.Stats().After:
		return 0, max(g.before, version+1), f.expired(version)
	case g != nil && err != nil:
		// Changes with the version have left the log, but not those that the reader may
		// not have seen.
		return g.firstRevision, 0, nil
	case g != nil:
		return min(revision, g.firstRevision), 0, nil
	case err != nil:
		return 0, f.log.Oldest(), f.expired(version)
	}
	return revision, 0, nil
}

// expired returns the error for a version after which changes may be missing.
func (f *Feed) expired(version uint64) error {
	return fmt.Errorf("%s after version %d: %w", f.resource.GroupResource(), version, ErrExpired)
}

// Cursor returns a cursor for the changes after a revision that can concern a reader. If
// readers have named more fields than the log has dimensions for, it reads all changes.
func (f *Feed) Cursor(revision uint64, interest fanout.Interest) (*fanout.Cursor[*wire.Object], error) {
	return objectlog.Cursor(f.log, revision, interest)
}

// At returns the state that the server had at a version, as far as the history goes. It
// undoes the changes since, at some 100 ns for each.
func (f *Feed) At(version uint64) (*Past, error) {
	now, after, lastRevision, err := f.changesSince(version)
	if err != nil {
		return nil, err
	}
	past := &Past{now: now.State, Version: version}
	if version == now.Version {
		return past, nil
	}
	cursor, err := f.log.Cursor(after, fanout.Everything())
	if err != nil {
		return nil, err
	}
	return past, past.undo(cursor, lastRevision, now.Revision)
}

// changesSince returns what At needs to undo changes: the newest state, the revision after which to
// begin, and lastRevision. Changes with the wanted version and a revision above lastRevision were
// found by a list and must be undone too.
func (f *Feed) changesSince(version uint64) (now *Moment, after, lastRevision uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now, err = f.Now(); err != nil {
		return nil, 0, 0, err
	}
	if after, _, err = f.sinceLocked(version, now); err != nil {
		if version == now.Version && !f.era.mayPredateRestore(version, now.Version) {
			err = nil // the newest state needs no history
		}
		return now, 0, 0, err
	}
	lastRevision = now.Revision
	if g := f.coverage.gapAt(version); g != nil {
		lastRevision = g.lastRevision
	}
	return now, after, lastRevision, nil
}
