// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// begin takes over the segments that the cluster has.
func (l *clusterLog) begin(c *Cluster) {
	l.next = 1
	l.previous = 0
	l.sums = c.index.Sums
	l.newest = c.index.Newest
	for _, number := range c.index.Segments {
		s := segmentInfo{number: number}
		if info, err := os.Stat(filepath.Join(c.folder, format.SegmentName(number))); err == nil {
			s.size = info.Size()
		}
		if h, err := format.ReadHeader(c.folder, number); err == nil {
			s.began, s.base = h.Time, cmp.Or(h.Base, h.From)
		}
		l.segments = append(l.segments, s)
		l.next, l.previous, l.inherited = number+1, c.index.End, true
	}
	// If a segment is lost, its number stays unused as long as a snapshot continues there:
	// other frames at that place would seem to be before or after the snapshot.
	for _, name := range c.index.Snapshots {
		if number, ok := format.SegmentOf(name); ok && number >= l.next {
			l.next, l.previous = number+1, -1
		}
	}
	if c.problem != nil {
		l.previous = -1
	}
}

// ready makes sure that there is a segment to write to.
func (l *clusterLog) ready(c *Cluster, now time.Time) error {
	d := c.directory
	now = later(d.clock.read(now), l.newest)
	d.lend(l)
	if s := l.current; s != nil && (s.size+int64(len(l.buffer)) >= d.limits.segment ||
		s.size > d.limits.chunk && now.Sub(s.began) > d.opts.Window/4) {
		if err := l.finish(c); err != nil {
			return err
		}
	}
	if l.current != nil {
		return nil
	}
	if err := l.prepare(c); err != nil {
		return err
	}
	base, all := d.ledger.needed(c)
	from := l.from(d.limits, all, now)
	h := format.SegmentHeader{
		Name: c.name, Time: now, From: from, Base: base, Previous: l.previous,
		Dictionaries: slices.Sorted(maps.Keys(l.sums)),
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	f, err := d.files.Create(filepath.Join(c.folder, format.SegmentName(l.next)))
	if errors.Is(err, fs.ErrExist) {
		// The folder could not be read before.
		files, _ := format.List(c.folder)
		l.next, l.previous = append(files.Segments, l.next)[max(0, len(files.Segments)-1)]+1, -1
	}
	if err != nil {
		return err
	}
	c.exchange(f)
	l.segments = append(l.segments, segmentInfo{number: l.next, began: now, base: base})
	l.current = &l.segments[len(l.segments)-1]
	l.next++
	before := l.sums
	l.mirrors, l.seal, l.sums = 0, nil, map[string]bool{}
	l.index, l.covered, l.indexed = keyindex.Builder{}, format.HeadSize, 0
	l.buffer = append(l.buffer[:0], format.NewHead(format.LogMagic, format.Version)...)
	l.frame(format.SegmentFrame, 0, text)
	if err := l.flush(c); err != nil {
		l.sums = before // the next header has to name them
		return errors.Join(err, l.discard(c))
	}
	return d.files.SyncFolder(c.folder)
}

// prepare makes the folder of the cluster, and everything that another process has written
// there, durable: the next segment continues it.
func (l *clusterLog) prepare(c *Cluster) error {
	s := &c.directory.files
	if err := c.directory.createFolder(c.folder); err != nil {
		return err
	}
	if !l.inherited {
		return nil
	}
	f, err := s.Open(filepath.Join(c.folder, format.SegmentName(l.segments[len(l.segments)-1].number)))
	if err != nil {
		l.inherited = false // no state was loaded from it either
		return nil
	}
	err = errors.Join(s.Sync(f), f.Close())
	l.inherited = err != nil
	return err
}

// discard removes a segment whose header could not be written.
func (l *clusterLog) discard(c *Cluster) error {
	number := l.current.number
	if err := os.Remove(filepath.Join(c.folder, format.SegmentName(number))); err != nil {
		l.previous = -1
		return err
	}
	l.segments = l.segments[:len(l.segments)-1]
	l.current, l.next = nil, number
	return nil
}

// exchange makes f the current file. It closes the last one.
func (c *Cluster) exchange(f *os.File) {
	c.fileMu.Lock()
	defer c.fileMu.Unlock()
	if c.file != nil {
		_ = c.file.Close() // its bytes are synced, or it has failed already
	}
	c.file, c.unsync, c.failed = f, false, nil
}

// end returns the length of the current segment with the frames that are not written yet.
func (l *clusterLog) end() int64 { return l.current.size + int64(len(l.buffer)) }

// frame adds a frame to the buffer.
func (l *clusterLog) frame(kind byte, number uint32, payload []byte) {
	l.buffer = format.AppendFrame(l.buffer, l.current.number, l.end(), kind, number, payload)
}

// addIndex adds the index of the frames since the last index to the buffer.
func (l *clusterLog) addIndex(d *Directory) {
	own := l.end()
	if own == l.covered {
		return
	}
	d.payload = l.index.Append(d.payload[:0], l.covered, l.indexed, own)
	l.frame(format.IndexFrame, 0, d.payload)
	l.covered, l.indexed = l.end(), own
}

// flush writes the buffer.
func (l *clusterLog) flush(c *Cluster) error {
	if l.current == nil || len(l.buffer) == 0 {
		return nil
	}
	c.fileMu.Lock()
	f, failed := c.file, c.failed
	c.fileMu.Unlock()
	if failed != nil {
		return failed
	}
	if f == nil {
		return fs.ErrClosed
	}
	if err := c.directory.files.Write(f, l.buffer); err != nil {
		return err
	}
	c.directory.written.Add(int64(len(l.buffer)))
	l.current.size += int64(len(l.buffer))
	l.previous = l.current.size
	l.buffer = l.buffer[:0]
	c.fileMu.Lock()
	defer c.fileMu.Unlock()
	c.unsync = true
	return nil
}

// finish ends the current segment. It is durable before the next one begins, so that
// nothing can be missing between them.
func (l *clusterLog) finish(c *Cluster) error {
	if l.current == nil {
		return nil
	}
	l.addIndex(c.directory)
	if err := l.flush(c); err != nil {
		return err
	}
	if err := c.sync(); err != nil {
		return err
	}
	c.exchange(nil)
	l.current = nil
	return nil
}

// sync makes the written bytes durable. After an error the segment must be given up,
// because the kernel may have dropped the bytes.
func (c *Cluster) sync() error {
	c.syncMu.Lock()
	defer c.syncMu.Unlock()
	c.fileMu.Lock()
	f, todo, failed := c.file, c.unsync, c.failed
	c.unsync = false
	c.fileMu.Unlock()
	if !todo || f == nil || failed != nil {
		return failed
	}
	c.directory.syncs.Add(1)
	err := c.directory.files.Sync(f)
	c.fileMu.Lock()
	defer c.fileMu.Unlock()
	if err == nil || c.file != f || errors.Is(err, fs.ErrClosed) {
		return nil
	}
	c.failed = fmt.Errorf("sync %s: %w", f.Name(), err)
	return c.failed
}

// abandon gives the current segment up after an error. All mirrors of the cluster begin
// anew in the next one.
func (l *clusterLog) abandon(c *Cluster, err error, now time.Time) {
	d := c.directory
	c.exchange(nil)
	failed := l.current
	l.current, l.buffer = nil, l.buffer[:0]
	l.wait = min(max(2*l.wait, d.limits.minRetry), d.limits.maxRetry)
	l.retry = now.Add(l.wait)
	d.ledger.report(fmt.Errorf("log of cluster %s: %w", c.name, err))
	d.ledger.abandon(c, failed, err)
}

// declare writes the declaration of a mirror, unless the segment has it. Version and era
// are those before the frames that follow, and at is the time of a complete state that
// follows, if one does.
func (l *clusterLog) declare(c *Cluster, m *Mirror, epoch, version, era uint64, at time.Time) error {
	if m.segment == l.current.number && m.declared == epoch {
		return nil
	}
	last := c.directory.ledger.lastWritten(m)
	if at.IsZero() && last != nil {
		at = last.Time
	}
	d := format.Declaration{
		Identity: m.id, Link: format.Continues, Version: version, Era: era, Time: at,
		Open: m.relisting, Restored: m.restored,
	}
	switch {
	case m.segment != 0 && m.declared == epoch:
	case m.segment == 0 && m.resumed && epoch == 0:
		d.Link = format.Resumes
	default:
		d.Link, d.Open, d.Gap = format.Restarts, false, last
	}
	e := format.NewEncoder(m.id, m.opts.Kind, m.opts.Packer)
	if format.Sealed(m.id) {
		if l.seal == nil {
			var err error
			if l.seal, l.wrapped, err = format.NewDataKey(c.directory.opts.Keys); err != nil {
				return &mirrorError{err}
			}
		}
		e.Seal, d.Key = l.seal, l.wrapped
	}
	e.Ready = func(dict *pack.Dictionary) bool { return c.directory.dictionaries.Ready(dict, format.Sealed(m.id)) }
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	l.mirrors++
	m.encoder = e
	m.segment = l.current.number
	m.number = l.mirrors
	m.declared = epoch
	l.index.Declare(keyindex.Mirror(m.digest), l.end()-l.covered, e.SealIndex(l.covered))
	l.frame(format.MirrorFrame, m.number, text)
	return nil
}

// write adds a batch or a complete state to the buffer, in as many frames as it needs. It
// returns the size of the frames.
func (l *clusterLog) write(
	c *Cluster, m *Mirror, kind byte, h keyindex.Head, changes iter.Seq[format.QueuedChange],
) (size int64, err error) {
	d := c.directory
	named, count := len(m.encoder.Sums), 0
	d.items, d.hashes = d.items[:0], d.hashes[:0]
	m.encoder.Begin()
	entry := keyindex.Frame{Mirror: keyindex.Mirror(m.digest), Kind: kind}
	entry.Ordinary = kind == format.BatchFrame && h.Flags == 0 &&
		!m.relisting && h.Era == m.era && h.Version >= m.version
	emit := func(flags byte) error {
		part := h
		part.Flags |= flags
		entry.Offset, entry.Head = l.end()-l.covered, part
		entry.Hashes, entry.Seal = d.hashes, m.encoder.SealIndex(l.covered)
		entry.Ordinary = entry.Ordinary && flags == 0
		entry.Required = len(m.encoder.Sums) > named
		l.index.Add(&entry)
		for _, s := range m.encoder.Sums[named:] {
			l.sums[s.String()] = true
		}
		d.payload = append(format.AppendBatch(d.payload[:0], part, m.encoder.Sums[named:], count), d.items...)
		l.frame(kind, m.number, d.payload)
		size += format.FrameSize + int64(len(d.payload))
		named, count, d.items, d.hashes = len(m.encoder.Sums), 0, d.items[:0], d.hashes[:0]
		m.encoder.Begin()
		if l.end()-l.covered >= d.limits.indexed || int64(l.index.Size()) >= d.limits.index {
			l.addIndex(d)
		}
		if int64(len(l.buffer)) >= d.limits.chunk {
			return l.flush(c)
		}
		return nil
	}
	for change := range changes {
		if int64(len(d.items)) >= d.limits.chunk {
			if err := emit(format.PartialBatch); err != nil {
				return 0, err
			}
		}
		key := len(d.items) + 1 // after the flags
		if d.items, err = m.encoder.Append(d.items, change, kind == format.StateFrame); err != nil {
			return 0, &mirrorError{err}
		}
		item := keyindex.Fields{B: d.items[key:]}
		d.hashes = append(d.hashes, keyindex.Hash(item.Text()))
		count++
	}
	if m.relisting = h.Flags&format.OpenBatch != 0; !m.relisting {
		m.version, m.era = h.Version, h.Era
	}
	err = emit(0)
	return size, err
}

// mirrorError is an error that concerns one mirror and not the log.
type mirrorError struct{ error }
