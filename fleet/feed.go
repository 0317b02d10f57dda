// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

var (
	// ErrNotReady means that a resource has not synced yet.
	ErrNotReady = errors.New("not synced yet")
	// ErrExpired means that a version is too old: its state, or the changes since, are
	// not available any more.
	ErrExpired = fanout.ErrExpired
	// ErrFuture means that the copy has not reached a version.
	ErrFuture = errors.New("version is not reached yet")
)

// Feed is one resource of one cluster, for readers that use the versions of its API
// server. It has states that the server had, each at its version, and the changes between
// them in the order of their versions. During a relist the state before it stays; then
// the differences are published at once. All methods are safe for concurrent use.
//
// It costs about 600 bytes. The size of its changes is limited by [Options.History].
type Feed struct {
	resource *kube.Resource // of the mirror; it does not change
	informer *informer
	log      *fanout.Log[*wire.Object]
	now      atomic.Pointer[Moment]
	files    atomic.Pointer[storedFeed] // nil if the past is not stored
	wanted   atomic.Bool                // a reader has asked before there was a state

	// mu guards the fields below. It is held while a batch is published, and never while
	// a reader waits.
	mu sync.Mutex
	// covered are the versions after which the log is complete.
	covered coverage
	// reached is the revision at which the feed first had the newest version: that of the
	// first change with it, or of the state before a bookmark.
	reached uint64
	// relisting is set during a relist, and pending are its differences so far.
	relisting bool
	pending   []store.Change[*wire.Object]
	// era has the versions since etcd was restored from a backup. predecessor is the feed
	// of the cluster that this feed's cluster has replaced, until this feed has a state.
	era         era
	predecessor *Feed
	// stored is the moment of the stored state, until the feed has it.
	stored *Moment
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

// newFeed returns the feed of a resource that an informer reads. Window limits its log, in
// bytes.
func newFeed(r *kube.Resource, i *informer, window int64) *Feed {
	f := &Feed{resource: r, informer: i}
	opts := LogOptions()
	opts.Bytes, opts.Count = window, max(10_000, int(window>>10))
	opts.Size = func(c store.Change[*wire.Object]) int { return size(c.Type, c.Old, c.New) }
	f.log = fanout.New(opts)
	f.era.log = f.log
	return f
}

// Resource returns the resource of the feed.
func (f *Feed) Resource() kube.Resource { return *f.resource }

// Connection returns the status of the list or watch that reads the resource.
func (f *Feed) Connection() reflector.Status { return f.informer.Connection() }

// Now returns the newest state. The error is [ErrNotReady].
func (f *Feed) Now() (*Moment, error) {
	if m := f.now.Load(); m != nil {
		return m, nil
	}
	f.wanted.Store(true)
	return nil, fmt.Errorf("%s: %w", f.resource.GroupResource(), ErrNotReady)
}

// applied handles a batch. The informer waits for it.
func (f *Feed) applied(s state, changes []store.Change[*wire.Object], whole bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.now.Load()
	switch {
	case last == nil && whole:
		f.inheritLocked()
		f.now.Store(f.firstLocked(s))
		f.era.mark(s.Version())
	case last == nil:
	case !whole:
		f.relisting, f.pending = true, append(f.pending, changes...)
	case s.Era() != last.State.Era():
		f.restartLocked(last, s)
	case f.relisting:
		all := inOrder(net(append(f.pending, changes...)), last.Version)
		f.passLocked(last, s.Version(), len(all))
		f.publishLocked(last, s, all)
	default:
		f.publishLocked(last, s, changes)
	}
	if whole {
		f.relisting, f.pending = false, nil
	}
}

// firstLocked returns the first moment: the stored one, if the state is the stored one.
func (f *Feed) firstLocked(s state) *Moment {
	first := f.stored
	f.stored = nil
	if first == nil || first.Version != s.Version() {
		f.covered = coverage{began: s.Version()}
		first = &Moment{Version: s.Version()}
	}
	first.State = s
	return first
}

// restore publishes the changes that led to a stored state, so that readers which had seen
// earlier ones can resume. It is called before the feed has a state.
func (f *Feed) restore(s *disk.State) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.covered = coverage{began: s.After}
	if was := s.Restored; was != nil {
		f.era.restored = &restore{last: was.Version, former: slices.Sorted(slices.Values(was.Former)), at: was.Time}
		f.era.mark(s.After)
	}
	last := &Moment{Version: s.After}
	for i := range s.Records {
		r := &s.Records[i]
		changes := changesOf(r)
		if r.Listed {
			changes = inOrder(net(changes), last.Version)
			f.passLocked(last, r.Version, len(changes))
		}
		next, all := f.nextLocked(last, r.Version, changes)
		f.log.Publish(all)
		last = next
	}
	f.stored = last
}

// changesOf returns the changes of a stored record.
func changesOf(r *disk.Record) []store.Change[*wire.Object] {
	all := make([]store.Change[*wire.Object], len(r.Changes))
	for i, c := range r.Changes {
		all[i] = store.Change[*wire.Object]{Type: c.Type, Missed: c.Missed, Key: c.Key, Old: c.Old, New: c.Object, Version: c.Version}
	}
	return all
}

// passLocked records that a list led from the last state to one at a version, and how
// many differences it found.
func (f *Feed) passLocked(last *Moment, version uint64, differences int) {
	if differences == 0 && version <= last.Version+1 {
		return // nothing can have happened
	}
	skipped := gap{after: last.Version, before: version, again: f.reached, revision: last.Revision}
	if version == last.Version {
		skipped.revision += uint64(differences)
	}
	f.covered.add(skipped, f.log.Oldest())
}

// restartLocked begins a new era: etcd was restored from a backup, and earlier versions
// have another meaning now.
func (f *Feed) restartLocked(last *Moment, s state) {
	f.era = era{log: f.log, restored: f.era.legacy(last.Version)}
	f.covered = coverage{began: s.Version()}
	now := &Moment{State: s, Version: s.Version(), Revision: last.Revision + 1}
	f.now.Store(now)
	f.reached = now.Revision
	f.log.Cut(now.Revision)
	f.era.mark(now.Version)
	f.wakeLocked(func(*waiter) bool { return true })
}

// publishLocked makes a state the newest one. The changes lead to it from the last state.
func (f *Feed) publishLocked(last *Moment, s state, changes []store.Change[*wire.Object]) {
	next, all := f.nextLocked(last, s.Version(), changes)
	next.State = s
	// A reader that receives a change must find it in the state.
	f.now.Store(next)
	f.log.Publish(all)
	f.wakeLocked(func(w *waiter) bool { return w.version <= next.Version })
}

// nextLocked returns the moment after the last one, without its state, and the changes with
// their revisions and versions.
func (f *Feed) nextLocked(last *Moment, reached uint64, changes []store.Change[*wire.Object]) (*Moment, []store.Change[*wire.Object]) {
	next := &Moment{Version: reached, Revision: last.Revision}
	all, version := make([]store.Change[*wire.Object], 0, len(changes)), last.Version
	for _, c := range changes {
		if c.Type == delta.Sync {
			continue
		}
		next.Revision++
		if c.Version > version {
			version, f.reached = c.Version, next.Revision
		}
		c.Revision, c.Version = next.Revision, version
		all = append(all, c)
	}
	if next.Version > version {
		f.reached = next.Revision
		f.era.mark(next.Version)
	}
	return next, all
}

// wakeLocked wakes the readers that a function selects.
func (f *Feed) wakeLocked(due func(*waiter) bool) {
	f.waiting = slices.DeleteFunc(f.waiting, func(w *waiter) bool {
		if !due(w) {
			return false
		}
		close(w.woken)
		return true
	})
}

// close ends the feed. Its readers can read the remaining changes.
func (f *Feed) close() {
	if f == nil {
		return
	}
	f.log.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.wakeLocked(func(*waiter) bool { return true })
}

// Wait waits until the state has reached a version, and returns it. If ctx ends before,
// it returns the newest state and [ErrFuture].
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
		if !f.reach(ctx, w) {
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

// reach waits until a reader is woken. It returns false if ctx ends before, or if w is
// nil because the feed is closed.
func (f *Feed) reach(ctx context.Context, w *waiter) bool {
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
// waits for it: earlier changes do not concern the reader. It returns [ErrExpired] if
// changes after the version may be missing, and then oldest is the first later version
// that it would accept; [fanout.ErrClosed] if the feed has ended; and the cause of ctx.
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
		case !f.reach(ctx, w):
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
	case f.era.doubtful(version, now.Version):
		return 0, max(now.Version, version+1), f.expired(version)
	case version > now.Version:
		return 0, 0, fmt.Errorf("%s after version %d: %w", f.resource.GroupResource(), version, ErrFuture)
	}
	if oldest = f.covered.from(version); version < oldest {
		return 0, oldest, f.expired(version)
	}
	revision, err = f.log.Since(version)
	g := f.covered.gapAt(version)
	switch {
	case g != nil && g.again < f.log.Stats().After:
		return 0, max(g.before, version+1), f.expired(version)
	case g != nil && err != nil:
		// Changes with the version have left the log, but not those that the reader may
		// not have seen.
		return g.again, 0, nil
	case g != nil:
		return min(revision, g.again), 0, nil
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
	return openCursor(f.log, revision, interest)
}

// At returns the state that the server had at a version, as far as the history goes. It
// undoes the changes since, at some 100 ns for each.
func (f *Feed) At(version uint64) (*Past, error) {
	now, after, own, err := f.before(version)
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
	return past, past.takeBack(cursor, own, now.Revision)
}

// before returns the newest state, a revision after which the changes since a version
// begin, and the last revision whose change can have happened at that version. Later
// changes with that version were found by a list.
func (f *Feed) before(version uint64) (now *Moment, after, own uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now, err = f.Now(); err != nil {
		return nil, 0, 0, err
	}
	if after, _, err = f.sinceLocked(version, now); err != nil {
		if version == now.Version && !f.era.doubtful(version, now.Version) {
			err = nil // the newest state needs no history
		}
		return now, 0, 0, err
	}
	own = now.Revision
	if g := f.covered.gapAt(version); g != nil {
		own = g.revision
	}
	return now, after, own, nil
}

// succeed sets the predecessor of the feed, whose cluster this feed's cluster has
// replaced. A version of that cluster has another meaning here, as after a restore.
// succeed is called before the feed has a state.
func (f *Feed) succeed(before *Feed) {
	if f != nil {
		f.predecessor = before
	}
}

// inheritLocked takes over the versions of the predecessor, when the first state arrives.
func (f *Feed) inheritLocked() {
	before := f.predecessor
	f.predecessor = nil
	for ; before != nil; before = before.former() {
		if was := before.legacy(); was != nil {
			f.era.restored = was.with(f.era.restored)
			return
		}
	}
}

// former returns the predecessor, if this feed has never had a state.
func (f *Feed) former() *Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.predecessor
}

// legacy returns the versions of this feed that the next one must remember, or nil if
// this one never had a state.
func (f *Feed) legacy() *restore {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.now.Load(); last != nil {
		return f.era.legacy(last.Version)
	}
	return nil
}
