// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

var (
	// ErrNotReady means that a resource has not synced yet.
	ErrNotReady = errors.New("not synced yet")
	// ErrExpired means that a version is too old to say what there was, or what has
	// changed since.
	ErrExpired = fanout.ErrExpired
	// ErrFuture means that the copy has not reached a version.
	ErrFuture = errors.New("version is not reached yet")
)

// Feed is one resource of one cluster as its API server tells it, for readers who go
// by versions: states that the server had, each at its version, and the changes
// between them in the order of their versions. While a list is being read the state
// before it stays; then its differences come at once. All methods are safe for
// concurrent use.
//
// It costs about 600 bytes, and its changes what [Options.History] bounds.
type Feed struct {
	mirror *mirror
	log    *fanout.Log[*wire.Object]
	now    atomic.Pointer[Moment]

	// mu guards what follows. It is held while a batch is published, and never while
	// somebody waits.
	mu sync.Mutex
	// began is the version from which on the log has everything, but for the gaps.
	began uint64
	// reached is the server's version: that of the newest state, or one less.
	reached uint64
	// relisting says that a list is being read, and pending are its differences.
	relisting bool
	pending   []store.Change[*wire.Object]
	// gaps are the newest of those between states that were told by a list, oldest
	// first.
	gaps []gap
	// advanced is closed when the version has, nil if nobody waits for that.
	advanced chan struct{}
}

// gap is what a list has passed over: of the versions between two nobody knows what
// was there. An object may have come and gone.
type gap struct{ after, before uint64 }

// mostGaps bounds them: a resource is listed when it must be, which is seldom.
const mostGaps = 64

// Moment is a state that a server had.
type Moment struct {
	// State is what there was.
	State watershed.Snapshot[*wire.Object]
	// Version is the server's.
	Version uint64
	// Revision is the place in the feed's log: a cursor there goes on from the state.
	Revision uint64
}

func newFeed(x *mirror) *Feed {
	f := &Feed{mirror: x}
	window := x.source.member.fleet.opts.Window
	opts := LogOptions()
	opts.Bytes, opts.Count = window, max(10_000, int(window>>10))
	opts.Size = func(c store.Change[*wire.Object]) int {
		return size(change{Type: c.Type, Old: located{object: c.Old}, New: located{object: c.New}})
	}
	f.log = fanout.New(opts)
	return f
}

// Resource is what the feed is of.
func (f *Feed) Resource() kube.Resource { return f.mirror.resource }

// Connection is how the resource is read.
func (f *Feed) Connection() reflector.Status { return f.mirror.informer.Connection() }

// Now is the newest state. The error is [ErrNotReady].
func (f *Feed) Now() (*Moment, error) {
	if m := f.now.Load(); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%s: %w", f.mirror.resource.GroupResource(), ErrNotReady)
}

// applied takes a batch. The informer waits for it.
func (f *Feed) applied(s state, changes []store.Change[*wire.Object], whole bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.now.Load()
	switch {
	case last == nil && whole:
		f.began, f.reached = s.Version(), s.Version()
		f.now.Store(&Moment{State: s, Version: s.Version()})
	case last == nil:
	case !whole:
		f.relisting, f.pending = true, append(f.pending, changes...)
	case s.Version() < f.reached:
		f.restartLocked(last, s)
	case f.relisting:
		f.relistedLocked(last, s, append(f.pending, changes...))
	default:
		f.publishLocked(last, &Moment{State: s, Version: max(s.Version(), last.Version)}, changes)
	}
	if whole {
		f.relisting, f.pending = false, nil
	}
}

// restartLocked begins anew: etcd was restored from a backup, and versions from before
// mean nothing any more.
func (f *Feed) restartLocked(last *Moment, s state) {
	f.began, f.reached, f.gaps = s.Version(), s.Version(), nil
	next := &Moment{State: s, Version: s.Version(), Revision: last.Revision + 1}
	f.now.Store(next)
	f.log.Cut(next.Revision)
	f.tellLocked()
}

// relistedLocked takes the state that a list has left. If it has the version of the
// state before, and differs, the difference has to have a later one.
func (f *Feed) relistedLocked(last *Moment, s state, changes []store.Change[*wire.Object]) {
	changes = inOrder(net(changes), last.Version)
	next := &Moment{State: s, Version: max(s.Version(), last.Version)}
	if len(changes) > 0 {
		next.Version = max(next.Version, last.Version+1)
	}
	if next.Version > last.Version+1 {
		f.gaps = append(f.gaps, gap{last.Version, next.Version})
	}
	for len(f.gaps) > 0 && (len(f.gaps) > mostGaps || f.gaps[0].before <= f.log.Oldest()) {
		f.began, f.gaps = max(f.began, f.gaps[0].before), f.gaps[1:]
	}
	f.publishLocked(last, next, changes)
}

func (f *Feed) publishLocked(last, next *Moment, changes []store.Change[*wire.Object]) {
	f.reached, next.Revision = next.State.Version(), last.Revision
	all, version := make([]store.Change[*wire.Object], 0, len(changes)), last.Version
	for _, c := range changes {
		if c.Type == delta.Sync {
			continue
		}
		next.Revision++
		version = max(version, c.Version)
		c.Revision, c.Version = next.Revision, version
		all = append(all, c)
	}
	// Who is told of a change must find it in the state.
	f.now.Store(next)
	f.log.Publish(all)
	f.tellLocked()
}

func (f *Feed) tellLocked() {
	if f.advanced != nil {
		close(f.advanced)
		f.advanced = nil
	}
}

// net makes of the changes of each object one, from the first state to the last. A
// list that was broken off and begun again tells of an object twice.
func net(changes []store.Change[*wire.Object]) []store.Change[*wire.Object] {
	at := make(map[string]int, len(changes))
	all := changes[:0]
	for _, c := range changes {
		if c.Type == delta.Sync {
			continue
		}
		i, again := at[c.Key]
		if !again {
			at[c.Key] = len(all)
			all = append(all, c)
			continue
		}
		c.Old = all[i].Old
		switch {
		case c.Type == delta.Deleted:
		case c.Old == nil:
			c.Type = delta.Added
		default:
			c.Type = delta.Updated
		}
		all[i] = c
	}
	return slices.DeleteFunc(all, func(c store.Change[*wire.Object]) bool { return c.Type == delta.Deleted && c.Old == nil })
}

// inOrder sorts the differences that a list made since a version by their own. When
// an object went that is not in the list nobody knows; nor why one differs whose
// version is not later. They are told before all others, since a reader who has seen a
// later version is not told again what was before.
func inOrder(changes []store.Change[*wire.Object], since uint64) []store.Change[*wire.Object] {
	for i := range changes {
		if c := &changes[i]; c.Type == delta.Deleted && c.Missed || c.Version <= since {
			c.Version = since + 1
		}
	}
	slices.SortStableFunc(changes, func(a, b store.Change[*wire.Object]) int { return cmp.Compare(a.Version, b.Version) })
	return changes
}

// close ends the feed: its readers get what is left.
func (f *Feed) close() {
	if f == nil {
		return
	}
	f.log.Close()
}

// Wait waits until the state has a version, and returns it. If ctx ends before, the
// error is [ErrFuture] and the newest state is returned too.
func (f *Feed) Wait(ctx context.Context, version uint64) (*Moment, error) {
	for {
		f.mu.Lock()
		m := f.now.Load()
		if m == nil || m.Version >= version {
			f.mu.Unlock()
			return f.Now()
		}
		if f.advanced == nil {
			f.advanced = make(chan struct{})
		}
		advanced := f.advanced
		f.mu.Unlock()
		select {
		case <-advanced:
		case <-ctx.Done():
			return m, fmt.Errorf("%s at version %d: %w", f.mirror.resource.GroupResource(), version, ErrFuture)
		}
	}
}

// Since is where a reader goes on who has seen everything up to a version, see
// [fanout.Log.Since]. The error is [ErrExpired], and then oldest is the first later
// version for which it would not be.
func (f *Feed) Since(version uint64) (revision, oldest uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sinceLocked(version)
}

func (f *Feed) sinceLocked(version uint64) (revision, oldest uint64, err error) {
	oldest = f.began
	for _, g := range f.gaps {
		if g.after < version && version < g.before {
			oldest = g.before
		}
	}
	if version >= oldest {
		if revision, err = f.log.Since(version); err == nil {
			return revision, 0, nil
		}
		oldest = f.log.Oldest()
	}
	return 0, oldest, fmt.Errorf("%s after version %d: %w", f.mirror.resource.GroupResource(), version, ErrExpired)
}

// Cursor reads the changes after a revision that can concern a reader. If more fields
// were named than the log has dimensions for, it reads all changes.
func (f *Feed) Cursor(revision uint64, interest fanout.Interest) (*fanout.Cursor[*wire.Object], error) {
	return openCursor(f.log, revision, interest)
}

// At is the state that the server had at a version, as far as the history goes. What
// has changed since is taken back: that costs some 100 ns for each change.
func (f *Feed) At(version uint64) (*Past, error) {
	now, revision, err := f.before(version)
	if err != nil {
		return nil, err
	}
	past := &Past{now: now.State, Version: version}
	if version == now.Version {
		return past, nil
	}
	cursor, err := f.log.Cursor(revision, fanout.Everything())
	if err != nil {
		return nil, err
	}
	return past, past.takeBack(cursor, now.Revision)
}

// before is the newest state, and where the changes begin that were made to it since a
// version.
func (f *Feed) before(version uint64) (now *Moment, revision uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now, err = f.Now(); err != nil || version == now.Version {
		return now, 0, err
	}
	if version > now.Version {
		return nil, 0, fmt.Errorf("%s at version %d: %w", f.mirror.resource.GroupResource(), version, ErrFuture)
	}
	revision, _, err = f.sinceLocked(version)
	return now, revision, err
}

// Feed is that of a resource, if it is mirrored and the fleet keeps a history.
func (m *Member) Feed(r schema.GroupResource) (*Feed, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.mirrors[r]
	if x == nil || x.feed == nil {
		return nil, false
	}
	return x.feed, true
}

// Served are the resources that have a feed, in the order of the server's discovery
// and as it told of them last.
func (m *Member) Served() []kube.Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]kube.Resource, 0, len(m.mirrors))
	for _, r := range m.listed {
		if x := m.mirrors[r.GroupResource()]; x != nil && x.feed != nil && x.resource.Version == r.Version {
			all = append(all, r)
		}
	}
	return all
}

// Versions are all that discovery told of, in its order, whatever is mirrored.
func (m *Member) Versions() []schema.GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []schema.GroupVersion
	for _, r := range m.listed {
		if !slices.Contains(all, r.GroupVersion()) {
			all = append(all, r.GroupVersion())
		}
	}
	return all
}
