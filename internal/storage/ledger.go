// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	linked "container/list"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// ledger is what a directory knows about its open clusters and their mirrors: which batches wait to
// be written, how far the files of each mirror are, which mirrors need a complete state, and which
// files are needed. It has an entry for each cluster and each mirror.
//
// The appending goroutines, the one that writes, the one that writes snapshots and the readers of the
// past meet here and nowhere else. Only methods of ledger use the entries. None of them does a file
// operation, so the lock is never held during one. Methods whose names end in "Locked" are called
// with the lock, and all others take it.
type ledger struct {
	limits *limits
	// buffer is [Options.Buffer].
	buffer int64
	logger *slog.Logger
	// wake and full wake the goroutine that writes: there is work, or a whole write of it.
	wake, full chan struct{}

	// mu guards the fields below, and all entries.
	mu       sync.Mutex
	clusters map[string]*Cluster
	// leaving is the folder that is being removed, and left is closed at the end of it.
	leaving string
	left    chan struct{}
	// queue has the batches that wait, in their order, and fullest the mirrors of them.
	queue   linked.List
	fullest fullest
	// queued is the size of the batches in the queue and of those being written.
	queued int64
	// wanting are the mirrors that need a complete state.
	wanting map[*Mirror]struct{}
	// busy means that a snapshot is being written.
	busy bool
	// batches, changes and snapshots count what was written.
	batches, changes, snapshots int64

	dropped uint64
	errors  uint64
	lastErr error
	lastAt  time.Time
	// failing means that an error was logged, and not yet that everything is written again.
	failing bool
}

// newLedger returns an empty ledger.
func newLedger(limits *limits, buffer int64, logger *slog.Logger) *ledger {
	return &ledger{
		limits: limits, buffer: buffer, logger: logger,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		clusters: map[string]*Cluster{}, wanting: map[*Mirror]struct{}{},
	}
}

// clusterEntry is the part of a [ledger] about a cluster.
type clusterEntry struct {
	// opened means that the index has been read.
	opened  bool
	mirrors map[format.Digest]*Mirror
	// unclaimed are the stored mirrors that are not open and have not been changed by this process.
	unclaimed map[format.Digest]*unclaimed
	// snapshots are the snapshots in the folder. Those of one mirror are in the order of the
	// log.
	snapshots []storedSnapshot
	// mismatched are the stored identities that mirrors have replaced.
	mismatched map[format.Digest]Identity
	// newest is the time of the newest batch. Times of batches never go back.
	newest time.Time
	// readers is how many readers of the past read the files, and delayed since when the removal of
	// old ones waits for them, the zero time if it does not.
	readers int
	delayed time.Time
}

// mirrorEntry is the part of a [ledger] about a mirror.
type mirrorEntry struct {
	// stored is what the files have, until the first batch.
	stored *unclaimed
	// latest is the newest state of the server, and open means that a relist has begun
	// since.
	latest     *store.Snapshot[*wire.Object]
	latestTime time.Time
	open       bool
	// newest is the newest state that was appended or loaded, and written the newest one
	// that the files have, nil if they have none.
	newest  appended
	written *format.Stamp
	// accept means that batches are queued. Otherwise they are dropped until a complete
	// state is written. linked means that the files lead to the queued batches without a
	// gap. epoch counts the gaps.
	accept, linked bool
	epoch          uint64
	// waiting are the mirror's batches in the queue, queued is their size, and place where
	// the mirror is in fullest.
	waiting []*linked.Element
	queued  int64
	place   int
	// retry is when a complete state may be written again after an error, and wait the
	// time before the next attempt.
	retry time.Time
	wait  time.Duration
	// base and nextBase are the oldest segments that the stored state and the snapshot
	// that is being written need, 0 if there is none.
	base, nextBase uint64
	// durable is the complete state before the newest one, if the newest one is in a segment
	// that may not be synced yet.
	durable durableState
	// baseBytes is the size of the newest complete state, logBytes that of the batches
	// since.
	baseBytes, logBytes int64
	// snapshot is the name of the mirror's newest snapshot, empty if there is none.
	snapshot string
	status   MirrorStatus
	closed   bool
}

// unclaimed is what the files have of a mirror that is not open or has no new batch yet.
type unclaimed struct {
	*reader.Found
	// replaced means that a mirror of the same objects with another identity was opened, or that
	// the mirror was opened and there is no key for it. Its files are removed as the past is.
	replaced bool
}

// durableState is a complete state in the files: the oldest segment that it needs, and its
// snapshot, if it has one.
type durableState struct {
	base     uint64
	snapshot string
}

// appended is what the next batch of a mirror is compared with, to find out whether the server
// was restored from a backup: then the state has another era.
type appended struct {
	known        bool
	version, era uint64
	restored     *Restored // the last restore
}

// next returns the state after a batch.
func (a appended) next(s *store.Snapshot[*wire.Object], at time.Time) appended {
	next := appended{known: true, version: s.Version(), era: s.Era(), restored: a.restored}
	if a.known && next.era != a.era {
		next.restored = &Restored{Version: a.version, Time: at}
		if a.restored != nil {
			next.restored.Version = max(a.version, a.restored.Version)
		}
	}
	return next
}

// cluster returns a cluster, which it makes if it is not known. It waits while the folder of the
// cluster is being removed.
func (l *ledger) cluster(name string, create func() *Cluster) *Cluster {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[name]
	if c == nil {
		c = create()
		l.awaitRemovalLocked(c.folder)
	}
	if other := l.clusters[name]; other != nil {
		return other
	}
	l.clusters[name] = c
	return c
}

// awaitRemovalLocked waits while a folder is being removed.
func (l *ledger) awaitRemovalLocked(folder string) {
	for l.leaving == folder {
		left := l.left
		l.mu.Unlock()
		<-left
		l.mu.Lock()
	}
}

// opened records what the index of a cluster has.
func (l *ledger) opened(c *Cluster, stored map[format.Digest]*unclaimed, snapshots []storedSnapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.entry.unclaimed, c.entry.snapshots = stored, snapshots
	c.entry.opened, c.entry.newest = true, c.index.Newest
}

// forget forgets a cluster without open mirrors. It returns nil if it is not known.
func (l *ledger) forget(cluster string) (*Cluster, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[cluster]
	if c == nil {
		return nil, nil
	}
	for _, m := range c.entry.mirrors {
		if !m.entry.closed {
			return nil, fmt.Errorf("disk: cluster %s: %v is open", cluster, m.id)
		}
		l.dropLocked(m, nil)
	}
	c.removed.Store(true)
	delete(l.clusters, cluster)
	return c, nil
}

// openClusters returns the clusters whose index has been read.
func (l *ledger) openClusters() []*Cluster {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*Cluster
	for _, c := range l.clusters {
		if c.entry.opened {
			all = append(all, c)
		}
	}
	return all
}

// isOpen reports whether a folder is that of a cluster in use.
func (l *ledger) isOpen(folder string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isOpenLocked(folder)
}

// isOpenLocked is isOpen with the lock.
func (l *ledger) isOpenLocked(folder string) bool {
	for _, c := range l.clusters {
		if c.folder == folder {
			return true
		}
	}
	return false
}

// leave begins the removal of a folder, unless the cluster has been opened meanwhile. Until
// hasLeft is called, the cluster cannot be opened.
func (l *ledger) leave(folder string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOpenLocked(folder) {
		return false
	}
	l.leaving, l.left = folder, make(chan struct{})
	return true
}

// hasLeft ends the removal of a folder.
func (l *ledger) hasLeft() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.left)
	l.leaving, l.left = "", nil
}

// hold delays the removal of old files of a cluster until release is called, for some seconds at
// most: a reader that is slower than the removal would never read all of them.
func (l *ledger) hold(c *Cluster) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.entry.readers++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.entry.readers--
	}
}

// nearNow is how long ago a moment can be to mean the newest state if the clock was set back.
const nearNow = 10 * time.Second

// sinceSetBack returns the moment that selects what a caller wants if the clock was set back.
// Then the newest states seem to be from the future, and the newest one is that of now.
func (l *ledger) sinceSetBack(c *Cluster, m Moment, now time.Time) Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Version == 0 && c.entry.newest.After(now) && now.Sub(m.Time) < nearNow {
		m.Time = later(m.Time, c.entry.newest)
	}
	return m
}

// kindOf returns the kind of the objects of a mirror: that of the open one, if there is one.
func (l *ledger) kindOf(c *Cluster, id Identity) *wire.Kind {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open := c.entry.mirrors[format.DigestOf(id)]; open != nil {
		return open.opts.Kind
	}
	return format.KindOf(id)
}

// report counts an error, and logs it if it is the first since everything was written.
func (l *ledger) report(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors++
	l.lastErr, l.lastAt = err, time.Now()
	if !l.failing {
		l.failing = true
		l.logger.Warn("files cannot be written: "+
			"what is not written will be read from the clusters after a restart", "err", err)
	}
}

// reportRecovery logs that everything is written again, if something had failed.
func (l *ledger) reportRecovery(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing && len(l.wanting) == 0 && !l.busy && now.Sub(l.lastAt) > l.limits.maxRetry {
		l.failing = false
		l.logger.Info("files are written again", "errors", l.errors)
	}
}

// stats returns the counters of the ledger.
func (l *ledger) stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Batches: l.batches, Changes: l.changes, Snapshots: l.snapshots,
		Queued: l.queued, Dropped: l.dropped, Behind: len(l.wanting),
		Errors: l.errors, LastError: l.lastErr, LastErrorAt: l.lastAt,
	}
}
