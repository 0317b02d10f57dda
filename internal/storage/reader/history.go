// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// Entry is a record of one mirror in the history of a cluster.
type Entry struct {
	Identity format.Identity
	Record
}

// History yields the records of the mirrors that are wanted from a time on, in the order in which
// they arrived. An error means that records are missing there; the sequence continues after it.
// Files that are removed meanwhile are left out.
func (f *Folder) History(since time.Time, want func(format.Identity) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f.history(since, want).all(yield)
	}
}

// ObjectHistory yields the records of History that concern one object of a mirror, with only the
// changes of that object. It ends at the first state of the mirror that is later than until, or
// at the end of the log if until is zero.
func (f *Folder) ObjectHistory(id format.Identity, key string, since, until time.Time) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		h := f.history(since, func(other format.Identity) bool { return other == id })
		h.until, h.object = until, f.objectRead(id, key)
		h.all(yield)
	}
}

// history returns a history of the mirrors that are wanted.
func (f *Folder) history(since time.Time, want func(format.Identity) bool) *history {
	return &history{folder: f, since: since, want: want, chains: map[format.Digest]*historyChain{}}
}

// GapError is yielded by [Folder.History] where changes of a mirror may be missing: they
// could not be written, the mirror did not run, or the files were removed.
type GapError struct {
	Identity format.Identity
	// After is the version of the last state before the gap, and Since is when it arrived.
	// Version is that of the first state after the gap, which arrived at Until. After and the
	// times are zero if they are not known.
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
	folder *Folder
	index  *Index
	since  time.Time
	want   func(format.Identity) bool
	chains map[format.Digest]*historyChain
	// numbers are the mirrors that the current segment has declared, by their numbers, nil for one
	// that is not wanted. indexed means that it may have declared more that are not wanted.
	numbers map[uint32]*historyChain
	indexed bool
	// object is the object that the history is of, nil if it is of all. It ends when a state
	// has arrived after until, if that is not zero.
	object *objectRead
	until  time.Time
	ended  bool
}

// all yields the records of all segments.
func (h *history) all(yield func(Entry, error) bool) {
	x, err := listIndex(h.folder.Files, h.folder.Path)
	if err == nil {
		err = x.skipTorn()
	}
	if err != nil {
		yield(Entry{}, fmt.Errorf("disk: history of cluster %s: %w", h.folder.Cluster, err))
		return
	}
	h.index, x.object = x, h.object
	for i, number := range x.Segments {
		length, last := int64(-1), i+1 == len(x.Segments)
		if !last {
			next, err := format.ReadHeader(x.folder, x.Segments[i+1])
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
	identity format.Identity
	format.Restorer
}

// damage records that frames of any mirror are lost.
func (h *history) damage() {
	for _, c := range h.chains {
		c.damage()
	}
}

// segment yields the records of a segment, and returns false if the caller wants no more.
func (h *history) segment(number uint64, length int64, last bool, yield func(Entry, error) bool) bool {
	located := func(err error) error {
		return fmt.Errorf("disk: history of cluster %s: %s: %w", h.folder.Cluster, format.SegmentName(number), err)
	}
	var file *os.File // of the frames that the index names
	part, err := h.index.read(number, length, last)
	if err == nil && len(part.refs) > 0 {
		file, err = h.index.files.Open(filepath.Join(h.index.folder, format.SegmentName(number)))
		defer func() { _ = file.Close() }()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true // removed meanwhile, because it is too old
	}
	if err != nil {
		h.damage()
		return yield(Entry{}, located(err))
	}
	for _, c := range h.chains {
		c.Forget() // the mirror may have no frames in this segment
	}
	h.numbers, h.indexed = map[uint32]*historyChain{}, part.indexed
	for n := range len(part.refs) + len(part.rest.Frames) {
		f, err := part.frame(file, n)
		var entry Entry
		if err == nil {
			entry, err = h.frame(&f)
		} else {
			h.damage()
		}
		if err != nil && !errors.As(err, new(*GapError)) {
			err = located(fmt.Errorf("frame at %d: %w", f.Offset, err))
		}
		wanted := err != nil || len(entry.Changes) > 0 && !entry.Time.Before(h.since)
		if h.ended || wanted && !yield(entry, err) {
			return false
		}
	}
	if part.rest.Lost {
		h.damage()
		return yield(Entry{}, located(format.ErrChecksum))
	}
	return true
}

// frame handles one frame, and returns a record if it completes one. After an error, changes are
// missing of the mirror of the frame, or of all if it is not known.
func (h *history) frame(f *format.Frame) (entry Entry, err error) {
	c, declared := h.numbers[f.Number]
	switch {
	case f.Kind == format.SegmentFrame:
		return entry, nil
	case f.Kind == format.MirrorFrame:
		return entry, h.declare(f)
	case f.Kind == format.DamagedFrame && (!damagedBatch(f) || !declared && !h.indexed):
		h.damage()
		return entry, format.ErrChecksum
	case c == nil || c.locked != nil:
		return entry, nil // it is not wanted
	}
	var done *commit
	switch {
	case f.Kind == format.DamagedFrame:
		err = format.ErrChecksum
	case f.Head != nil:
		done = c.advance(f.Kind, *f.Head, nil)
	default:
		done, err = c.frame(f.Kind, f.Payload)
	}
	if done != nil {
		h.ended = !h.until.IsZero() && done.Time.After(h.until)
	}
	if done != nil && !done.state {
		entry.Identity = c.identity
		entry.Record, err = recordOf(&c.Restorer, done)
	}
	if err != nil {
		c.damage()
		entry = Entry{}
	}
	return entry, err
}

// declare handles a declaration. The error is a [*GapError] if it declares that changes are
// missing.
func (h *history) declare(f *format.Frame) error {
	var d format.Declaration
	if err := json.Unmarshal(f.Payload, &d); err != nil {
		h.damage()
		return err
	}
	h.numbers[f.Number] = nil
	if !h.want(d.Identity) {
		return nil
	}
	key := format.DigestOf(d.Identity)
	c := h.chains[key]
	if c == nil {
		c = &historyChain{chain: chain{keys: h.folder.Keys}, identity: d.Identity}
		c.Restorer = *h.folder.restorer(d.Identity)
		c.Lazy = true
		if h.object != nil {
			c.Only = h.object.key
		}
		h.chains[key] = c
	}
	h.numbers[f.Number] = c
	before := c.gapBefore(&d, h.since)
	if err := errors.Join(c.declare(&d), c.locked); err != nil {
		c.damage()
		return err
	}
	if before == nil || !d.Time.IsZero() && !d.Time.After(h.since) {
		return nil
	}
	return &GapError{Identity: d.Identity, After: before.Version, Since: before.Time, Version: d.Version, Until: d.Time}
}
