// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// sweepEvery is how often dictionaries that are not used any more are searched for.
const sweepEvery = time.Hour

// Run writes what is appended until ctx ends. Then it writes and syncs all queued batches,
// and returns nil. It can be called once.
func (d *Directory) Run(ctx context.Context) error {
	if !d.running.CompareAndSwap(false, true) {
		return errors.New("disk: the directory runs already")
	}
	var others sync.WaitGroup
	syncing, stop := context.WithCancel(context.Background())
	others.Go(func() { d.syncLoop(syncing) })
	others.Go(func() { d.snapshotLoop(syncing) })
	d.writeLoop(ctx)
	close(d.jobs)
	stop()
	others.Wait()
	return nil
}

// writeLoop writes queued batches until ctx ends.
func (d *Directory) writeLoop(ctx context.Context) {
	began := time.Now()
	maintained := began
	tick := time.NewTicker(d.limits.maintainEvery)
	defer tick.Stop()
	var again <-chan time.Time
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-again:
		case <-d.ledger.wake:
			select {
			case <-d.ledger.full:
			case <-time.After(d.limits.delay):
			case <-ctx.Done():
			}
		}
		now := time.Now()
		again = nil
		if d.round(now) {
			// A complete state has to wait for another one, or after an error.
			again = time.After(d.limits.minRetry / 10)
		}
		if now.Sub(maintained) >= d.limits.maintainEvery {
			maintained, d.settling = now, now.Sub(began) < confirmStep
			d.maintain(d.clock.read(now))
			d.ledger.reportRecovery(now)
		}
	}
	d.round(time.Now())
	for _, c := range d.ledger.openClusters() {
		if err := c.log.finish(c); err != nil {
			d.ledger.report(err)
		}
	}
}

// candidates returns the mirrors whose complete state can be written now, and whether it
// is large. At most one is large. Later means that others have to wait.
func (d *Directory) candidates(now time.Time) (all map[*Mirror]bool, later bool) {
	states, busy, later := d.ledger.wanted(now)
	all = map[*Mirror]bool{}
	for m, s := range states {
		// A mirror that was large is checked again when it is its turn.
		if m.large = busy && m.large || d.large(s); m.large && busy {
			later = true
			continue
		}
		busy = busy || m.large
		all[m] = m.large
	}
	return all, later
}

// large reports whether a state gets a file of its own.
func (d *Directory) large(s *store.Snapshot[*wire.Object]) bool {
	var n int64
	for _, o := range s.All() {
		if n += int64(o.Size()); n > d.limits.chunk {
			return true
		}
	}
	return false
}

// round writes the queued batches, and the complete states that mirrors need. It reports
// whether some of them have to be written later.
func (d *Directory) round(now time.Time) (later bool) {
	candidates, later := d.candidates(now)
	queue, jobs := d.ledger.take(candidates)
	bytes := int64(0)
	for _, q := range queue {
		bytes += q.size
	}
	touched := map[*Cluster]bool{}
	for _, q := range queue {
		touched[q.mirror.cluster] = true
		d.guard(q.mirror, now, func(l *clusterLog) error { return d.writeBatch(l, q) })
	}
	for _, j := range jobs {
		touched[j.mirror.cluster] = true
		d.guard(j.mirror, now, func(l *clusterLog) error { return d.writeState(l, j) })
	}
	for c := range touched {
		if err := c.log.flush(c); err != nil {
			c.log.abandon(c, err, now)
		} else if c.log.current != nil {
			c.log.wait = 0
		}
		d.takeBack(&c.log)
	}
	d.ledger.written(bytes)
	for _, j := range jobs {
		switch {
		case j.after == format.Position{}:
			d.stateFailed(j, nil)
		case j.large:
			d.jobs <- j // it is empty, because d.busy was not set
		default:
			d.ledger.stateWritten(j, "")
		}
	}
	return later
}

// guard calls a function that writes to the log of a mirror's cluster, and handles its
// error: the mirror, or all mirrors of the cluster, begin anew later.
func (d *Directory) guard(m *Mirror, now time.Time, write func(*clusterLog) error) {
	c := m.cluster
	l := &c.log
	if c.removed.Load() || l.current == nil && now.Before(l.retry) {
		d.ledger.drop(m, nil, time.Time{})
		return
	}
	err := l.ready(c, now)
	if err == nil {
		err = write(l)
	}
	one := (*mirrorError)(nil)
	switch {
	case errors.As(err, &one):
		d.ledger.report(fmt.Errorf("%v: %w", m.id, err))
		d.ledger.drop(m, err, now.Add(d.limits.maxRetry))
	case err != nil:
		l.abandon(c, err, now)
	}
}

// writeBatch writes one batch.
func (d *Directory) writeBatch(l *clusterLog, q *queuedBatch) error {
	m := q.mirror
	if q.epoch < m.oldest {
		return nil
	}
	if err := l.declare(m.cluster, m, q.epoch, m.version, m.era, time.Time{}); err != nil {
		return err
	}
	size, err := l.write(m.cluster, m, format.BatchFrame, q.Head, q.all())
	if err != nil {
		return err
	}
	m.restored, l.newest = q.restored, later(l.newest, q.Time)
	d.ledger.batchWritten(q, size)
	return nil
}

// writeState writes a complete state to the log, or notes the place for its snapshot.
func (d *Directory) writeState(l *clusterLog, j *stateJob) error {
	m := j.mirror
	if j.epoch < m.oldest {
		return nil
	}
	h := keyindex.Head{Version: j.state.Version(), Era: j.state.Era(), Time: j.time}
	m.restored = j.restored
	if err := l.declare(m.cluster, m, j.epoch, h.Version, h.Era, h.Time); err != nil {
		return err
	}
	after := format.Position{Segment: l.current.number, Offset: l.end()}
	if j.large {
		l.index.Cut(keyindex.Mirror(m.digest))
		m.version, m.era, m.relisting = h.Version, h.Era, false
	} else {
		var err error
		if j.bytes, err = l.write(m.cluster, m, format.StateFrame, h, format.Objects(j.state)); err != nil {
			return err
		}
	}
	j.after = after
	d.ledger.stateBegun(m, after.Segment, &format.Stamp{Version: h.Version, Time: h.Time})
	return nil
}

// stateFailed requests the complete state again, after a while.
func (d *Directory) stateFailed(j *stateJob, err error) {
	if err != nil {
		d.ledger.report(fmt.Errorf("snapshot of %v: %w", j.mirror.id, err))
	}
	d.ledger.stateFailed(j, err)
}

// snapshotRest is how much longer the writer of a snapshot rests after a chunk than the chunk
// took, so that it takes a fifth of a processor. Readers wait for a processor otherwise: a
// snapshot of 100,000 objects is 0.1 s of work. When ctx ends, it does not rest any more.
const snapshotRest = 4

// snapshotLoop writes snapshots, one at a time.
func (d *Directory) snapshotLoop(ctx context.Context) {
	rest := func(took time.Duration) { _ = timer.Sleep(ctx, snapshotRest*took) }
	for j := range d.jobs {
		name := format.SnapshotName(j.mirror.digest, j.after)
		if err := d.writeSnapshot(j, name, rest); err != nil {
			d.stateFailed(j, err)
			continue
		}
		d.ledger.stateWritten(j, name)
	}
}

// writeSnapshot writes the snapshot of a mirror. It calls rest after each chunk, with the time
// that the chunk took.
func (d *Directory) writeSnapshot(j *stateJob, name string, rest func(time.Duration)) error {
	m := j.mirror
	w := format.SnapshotWriter{Size: int(d.limits.chunk), Rest: rest, Began: time.Now()}
	w.Encoder = *format.NewEncoder(m.id, m.opts.Kind, m.opts.Packer)
	w.Foot = format.Footer{
		Identity: m.id, Name: m.cluster.name, Version: j.state.Version(), Time: j.time,
		After: j.after, Restored: j.restored,
	}
	if format.Sealed(m.id) {
		var err error
		if w.Seal, w.Foot.Key, err = format.NewDataKey(d.opts.Keys); err != nil {
			return err
		}
	}
	w.Ready = func(dict *pack.Dictionary) bool {
		err := d.dictionaries.Write(dict, format.Sealed(m.id))
		d.ledger.report(err)
		return err == nil
	}
	err := d.files.Replace(filepath.Join(m.cluster.folder, name), func(write func([]byte) error) error {
		w.Write = write
		return w.WriteAll(j.state)
	})
	j.bytes = w.Bytes
	d.written.Add(w.Bytes)
	return err
}

// syncLoop makes logs and dictionaries durable until ctx ends.
func (d *Directory) syncLoop(ctx context.Context) {
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.syncNow:
		case <-time.After(d.limits.syncEvery):
			for _, c := range d.ledger.openClusters() {
				d.ledger.report(c.sync())
			}
		}
		d.ledger.report(d.dictionaries.WriteWanted())
		if time.Since(swept) > sweepEvery {
			swept = time.Now()
			d.ledger.report(d.sweep())
		}
	}
}

// sweep removes the dictionaries that no file names.
func (d *Directory) sweep() error {
	folders, err := clusterFolders(d.path)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, folder := range folders {
		if err := reader.NamedBy(&d.files, folder, named); err != nil {
			return err
		}
	}
	return d.dictionaries.Sweep(named)
}
