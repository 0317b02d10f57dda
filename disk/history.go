// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"time"
)

// Entry is a record of one mirror in the history of a cluster.
type Entry struct {
	Identity Identity
	Record
}

// History yields the stored records of mirrors from a time on, in the order in which they
// arrived, as far as the log reaches. Want selects the mirrors. It can be called at any
// time, and sees the records that have been written. An error means that records are
// missing there; the sequence continues after it. It is a [*GapError] if the mirror was
// not written for a while.
//
// [Change.Old] is not set, because History does not read complete states. A caller that
// needs it begins with the state that [Cluster.At] returns for the same time.
func (c *Cluster) History(since time.Time, want func(Identity) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		h := history{cluster: c, index: &index{files: &c.directory.files, folder: c.folder}, since: since, want: want, chains: map[digest]*historyChain{}}
		h.all(yield)
	}
}

// ObjectHistory is History of one object of a mirror. Each record has only the changes of the
// object, and ends when the mirror has had a state after until, which can be the zero time. It
// reads what concerns the object, by the index of the log. Damage elsewhere is not noticed.
func (c *Cluster) ObjectHistory(id Identity, key string, since, until time.Time) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		h := history{cluster: c, index: &index{files: &c.directory.files, folder: c.folder}, since: since, until: until, object: c.objectRead(id, key), chains: map[digest]*historyChain{}}
		h.want = func(other Identity) bool { return other == id }
		h.all(yield)
	}
}

// GapError is yielded by [Cluster.History] where changes of a mirror may be missing: they
// could not be written, or the mirror did not run.
type GapError struct {
	Identity Identity
	// After is the version of the last state before the gap, and Since is when it arrived.
	// Version is that of the first state after the gap, which arrived at Until. The times
	// are zero if they are not known.
	After, Version uint64
	Since, Until   time.Time
}

// Error implements error.
func (e *GapError) Error() string {
	text := fmt.Sprintf("changes of %v may be missing", e.Identity)
	if !e.Since.IsZero() {
		text += fmt.Sprintf(" after version %d of %s", e.After, e.Since.UTC().Format(time.RFC3339))
	}
	text += fmt.Sprintf(" up to version %d", e.Version)
	if !e.Until.IsZero() {
		text += " of " + e.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// history reads the segments of a cluster in order.
type history struct {
	cluster *Cluster
	index   *index
	since   time.Time
	want    func(Identity) bool
	chains  map[digest]*historyChain
	// object is the object that the history is of, nil if it is of all. It ends when a state
	// has arrived after until, if that is not zero.
	object *objectRead
	until  time.Time
	ended  bool
}

// all yields the records of all segments.
func (h *history) all(yield func(Entry, error) bool) {
	all, err := list(h.cluster.folder)
	if err != nil {
		yield(Entry{}, fmt.Errorf("disk: history of cluster %s: %w", h.cluster.name, err))
		return
	}
	for i, number := range all.segments {
		length, last := int64(-1), i+1 == len(all.segments)
		if !last {
			next, err := h.index.header(all.segments[i+1])
			if err == nil && next.Time.Before(h.since) {
				continue
			}
			if err == nil {
				length = next.Previous
			}
		}
		if !h.segment(number, length, last, yield) {
			return
		}
	}
}

// historyChain is one mirror of a history.
type historyChain struct {
	chain
	identity Identity
	restorer
}

// read returns the frames of a segment: those that concern the object, and the last ones, or
// all. A frame of which only the head is needed has it instead of a payload.
func (h *history) read(number uint64, length int64, last bool) (c contents, err error) {
	path := filepath.Join(h.cluster.folder, segmentName(number))
	if h.object != nil && (last || length >= 0) {
		part, err := h.object.segment(number, length)
		if err == nil {
			c, err = part.all(h.index.files, path)
		}
		if !errors.Is(err, errUnindexed) {
			return c, err
		}
	}
	data, err := h.index.files.readAll(path)
	if err != nil {
		return c, err
	}
	if length >= 0 && length < int64(len(data)) {
		data = data[:length]
	}
	if len(data) < headSize {
		return c, nil // the process ended when it had created the segment
	}
	if err := checkHead(segmentName(number), data, logMagic); err != nil {
		return c, err
	}
	return parseSegment(data, number, last), nil
}

// segment yields the records of a segment, and returns false if the caller wants no more.
func (h *history) segment(number uint64, length int64, last bool, yield func(Entry, error) bool) bool {
	failed := func(err error) bool {
		for _, c := range h.chains {
			c.damage()
		}
		return yield(Entry{}, fmt.Errorf("disk: history of cluster %s: %s: %w", h.cluster.name, segmentName(number), err))
	}
	content, err := h.read(number, length, last)
	if errors.Is(err, fs.ErrNotExist) {
		return true // removed meanwhile, because it is too old
	}
	if err != nil {
		return failed(err)
	}
	numbers := map[uint32]*historyChain{}
	for i := range content.frames {
		f := &content.frames[i]
		entry, ok, err := h.frame(numbers, f)
		gap := (*GapError)(nil)
		switch {
		case h.ended:
			return false
		case errors.As(err, &gap):
			if (gap.Until.IsZero() || gap.Until.After(h.since)) && !yield(Entry{}, err) {
				return false
			}
		case err != nil && !failed(fmt.Errorf("frame at %d: %w", f.offset, err)):
			return false
		case ok && !entry.Time.Before(h.since) && !yield(entry, nil):
			return false
		}
	}
	return !content.lost || failed(errChecksum)
}

// frame handles one frame, and returns a record if it completes one.
func (h *history) frame(numbers map[uint32]*historyChain, f *frame) (entry Entry, ok bool, err error) {
	switch f.kind {
	case segmentFrame:
		return entry, false, nil
	case damagedFrame:
		return entry, false, errChecksum
	case mirrorFrame:
		var d declaration
		if err := json.Unmarshal(f.payload, &d); err != nil {
			return entry, false, err
		}
		if !h.want(d.Identity) {
			return entry, false, nil
		}
		key := d.Identity.digest()
		c := h.chains[key]
		if c == nil {
			dir := h.cluster.directory
			c = &historyChain{chain: chain{keys: dir.opts.Keys}, identity: d.Identity, restorer: restorer{digest: key, kind: h.cluster.kindOf(d.Identity), dictionaries: dir.dictionaries, lazy: true}}
			if h.object != nil {
				c.only = h.object.key
			}
			h.chains[key] = c
		}
		numbers[f.number] = c
		before := c.gapBefore(&d)
		if err := errors.Join(c.declare(&d), c.locked); err != nil || before == nil {
			return entry, false, err
		}
		return entry, false, &GapError{Identity: d.Identity, After: before.Version, Since: before.Time, Version: d.Version, Until: d.Time}
	}
	c := numbers[f.number]
	if c == nil || c.locked != nil {
		return entry, false, nil
	}
	var done *commit
	if f.head != nil {
		done = c.advance(f.kind, *f.head, nil)
	} else {
		done, err = c.frame(f.kind, f.payload)
	}
	if done != nil && !h.until.IsZero() && done.time.After(h.until) {
		h.ended = true
	}
	if err != nil || done == nil || done.state || len(done.items) == 0 {
		return entry, false, err
	}
	entry.Identity = c.identity
	entry.Record, err = c.record(done)
	return entry, err == nil, err
}
