// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"slices"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// state is the state of the copy of a resource.
type state = watershed.Snapshot[*wire.Object]

// Writer has a feed and writes it. A fleet has one for each resource that it mirrors; readers
// have only the feed. The methods do nothing on nil: there may be no history.
type Writer struct{ feed Feed }

// NewWriter returns the writer of a feed without a state. The resource does not change.
// "connection" returns the status of the list or watch that reads it. "window" limits the log,
// in bytes.
func NewWriter(r *kube.Resource, connection func() reflector.Status, window int64) *Writer {
	w := &Writer{feed: Feed{resource: r, connection: connection, log: fanout.New(objectlog.Options(window))}}
	w.feed.era.log = w.feed.log
	return w
}

// Feed returns the feed, nil for nil.
func (w *Writer) Feed() *Feed {
	if w == nil {
		return nil
	}
	return &w.feed
}

// Log returns the changes of the feed.
func (w *Writer) Log() *fanout.Log[*wire.Object] { return w.feed.log }

// IsWanted reports whether a reader has asked for a state before there was one.
func (w *Writer) IsWanted() bool { return w != nil && w.feed.wanted.Load() }

// SetFiles sets the files from which the past of the feed is read: those of a resource in the
// files of a cluster with a name.
func (w *Writer) SetFiles(reader *DiskReader, cluster *storage.Cluster, name string, id storage.Identity) {
	if w != nil {
		w.feed.files.Store(&feedFiles{reader: reader, cluster: cluster, name: name, id: id})
	}
}

// Succeed sets the predecessor of the feed, whose cluster this feed's cluster has
// replaced. A version of that cluster has another meaning here, as after a restore.
// Succeed is called before the feed has a state. There may be no predecessor.
func (w *Writer) Succeed(before *Feed) {
	if w != nil {
		w.feed.predecessor = before
	}
}

// Load publishes the changes that led to a stored state, so that readers which had seen
// earlier ones can resume. It is called before the feed has a state.
func (w *Writer) Load(s *storage.State) {
	if w == nil {
		return
	}
	f := &w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.coverage = coverageFrom(s.After)
	if was := s.Restored; was != nil {
		f.era.restored = &restore{highest: was.Version, earlier: slices.Sorted(slices.Values(was.Former)), at: was.Time}
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
	f.loaded = last
}

// changesOf returns the changes of a stored record.
func changesOf(r *storage.Record) []store.Change[*wire.Object] {
	all := make([]store.Change[*wire.Object], len(r.Changes))
	for i, c := range r.Changes {
		all[i] = store.Change[*wire.Object]{
			Type: c.Type, Missed: c.Missed, Key: c.Key, Old: c.Old, New: c.Object, Version: c.Version,
		}
	}
	return all
}

// Apply handles a batch of changes and the state after it. "whole" is false for a state in the
// middle of a list, see [watershed.SourceOptions.Tap]. The informer waits for Apply.
func (w *Writer) Apply(s watershed.Snapshot[*wire.Object], changes []store.Change[*wire.Object], whole bool) {
	if w == nil {
		return
	}
	f := &w.feed
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
		f.relisting = true
		f.pending = append(f.pending, changes...)
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
		f.relisting = false
		f.pending = nil
	}
}

// Close ends the feed. Its readers can read the remaining changes.
func (w *Writer) Close() {
	if w == nil {
		return
	}
	f := &w.feed
	f.log.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.wakeLocked(func(*waiter) bool { return true })
}

// firstLocked returns the first moment: the loaded one, if the state is the one in the files.
func (f *Feed) firstLocked(s state) *Moment {
	first := f.loaded
	f.loaded = nil
	if first == nil || first.Version != s.Version() {
		f.coverage = coverageFrom(s.Version())
		first = &Moment{Version: s.Version()}
	}
	first.State = s
	return first
}

// passLocked records that a list led from the last state to one at a version, and how
// many differences it found.
func (f *Feed) passLocked(last *Moment, version uint64, differences int) {
	if differences == 0 && version <= last.Version+1 {
		return // nothing can have happened
	}
	skipped := gap{
		after: last.Version, before: version, firstRevision: f.firstRevision, lastRevision: last.Revision,
	}
	if version == last.Version {
		skipped.lastRevision += uint64(differences)
	}
	f.coverage.add(skipped, f.log.Oldest())
}

// restartLocked begins a new era: etcd was restored from a backup, and earlier versions
// have another meaning now.
func (f *Feed) restartLocked(last *Moment, s state) {
	f.era = era{log: f.log, restored: f.era.carryOver(last.Version)}
	f.coverage = coverageFrom(s.Version())
	now := &Moment{State: s, Version: s.Version(), Revision: last.Revision + 1}
	f.now.Store(now)
	f.firstRevision = now.Revision
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
// their revisions and versions. The moment is at a version, and the changes may all be older.
func (f *Feed) nextLocked(
	last *Moment, newest uint64, changes []store.Change[*wire.Object],
) (*Moment, []store.Change[*wire.Object]) {
	next := &Moment{Version: newest, Revision: last.Revision}
	all := make([]store.Change[*wire.Object], 0, len(changes))
	version := last.Version
	for _, c := range changes {
		if c.Type == delta.Sync {
			continue
		}
		next.Revision++
		if c.Version > version {
			version = c.Version
			f.firstRevision = next.Revision
		}
		c.Revision = next.Revision
		c.Version = version
		all = append(all, c)
	}
	if next.Version > version {
		f.firstRevision = next.Revision
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

// inheritLocked takes over the versions of the predecessor, when the first state arrives. A
// predecessor that never had a state may have a predecessor itself.
func (f *Feed) inheritLocked() {
	before := f.predecessor
	f.predecessor = nil
	for before != nil {
		was, its := before.carryOver()
		if was != nil {
			f.era.restored = was.with(f.era.restored)
			return
		}
		before = its
	}
}

// carryOver returns the versions of this feed that the next feed must remember. If this feed
// never had a state, it returns nil, and the predecessor of this feed.
func (f *Feed) carryOver() (*restore, *Feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.now.Load(); last != nil {
		return f.era.carryOver(last.Version), nil
	}
	return nil, f.predecessor
}
