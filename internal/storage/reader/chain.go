// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"errors"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// frameRef is the place of a frame.
type frameRef struct {
	format.Position
	size int
	kind byte
	// head is the beginning of a batch or state that is not read, because it does not concern
	// the object that is read. It is nil for all other frames.
	head *keyindex.Head
}

// Moment is a point in the past of a mirror: a version if that is not 0, or else a time.
type Moment struct {
	// Version selects the last state whose version is not higher. Of the changes of a batch
	// it includes those up to the version.
	Version uint64
	// Time selects the last state that had arrived by then.
	Time time.Time
}

// String returns the moment, for messages.
func (m Moment) String() string {
	if m.Version != 0 {
		return fmt.Sprintf("version %d", m.Version)
	}
	return m.Time.Format(time.RFC3339Nano)
}

// includes reports whether a state is not after the moment.
func (m Moment) includes(version uint64, at time.Time) bool {
	if m.Version != 0 {
		return version <= m.Version
	}
	return !at.After(m.Time)
}

// chain follows the frames of one mirror in the order of the log, and returns its batches
// once they are complete.
type chain struct {
	keys format.Keys
	format.Decoder
	// locked is the error of the newest encrypted data key, if it cannot be decrypted.
	locked error
	// seen means that a declaration was read. attached means that the frames since the
	// last cut are known to be complete.
	seen, attached bool
	// tail means that the beginning of the current batch is not known.
	tail         bool
	version, era uint64
	// time is when the last batch or state arrived.
	time    time.Time
	pending []format.Item
	listed  bool
}

// commit is a complete batch, or a complete state.
type commit struct {
	keyindex.Head
	items []format.Item
	state bool
	// again means that the server has gone back to an older version, so that the versions
	// before have another meaning. tail means that items lacks the beginning of the batch.
	again, tail bool
	// olds are the states of the objects before the items, nil for objects that did not
	// exist. Only a load that returns records sets them.
	olds []*format.Item
}

// declare handles a declaration. It returns an error if batches are missing before it that
// should be there.
func (c *chain) declare(d *format.Declaration) error {
	c.Decoder, c.locked = format.Decoder{Only: c.Only}, nil
	if d.Key != nil {
		c.Seal, c.locked = format.OpenDataKey(c.keys, d.Key)
	}
	seen := c.seen
	c.seen = true
	switch {
	case d.Link == format.Continues && c.attached:
		if d.Version != c.version || d.Open != c.listed {
			return fmt.Errorf("batches between the versions %d and %d are missing", c.version, d.Version)
		}
		return nil
	case d.Link == format.Continues && seen:
		return nil // nothing is known since the damage
	case d.Link == format.Resumes && c.attached && d.Version == c.version:
	default:
		c.attached, c.tail = true, !seen && d.Open
	}
	c.version, c.era = d.Version, d.Era
	c.pending, c.listed = nil, false
	return nil
}

// gapBefore returns the last state before the changes since a time that are missing before a
// declaration, with zero fields if it is not known. It returns nil if nothing is missing, or if
// the loss is known from damage. It is called before declare.
func (c *chain) gapBefore(d *format.Declaration, since time.Time) *format.Stamp {
	switch {
	case !c.seen && d.Link == format.Restarts && (d.Gap == nil || !d.Gap.Time.After(since)):
		return d.Gap
	case !c.seen && d.Time.After(since):
		return &format.Stamp{} // the segments with the changes up to then were removed
	case d.Link == format.Continues || !c.attached || d.Link == format.Resumes && d.Version == c.version:
		return nil
	}
	return &format.Stamp{Version: c.version, Time: c.time}
}

// damage records that a frame is lost. It may have named dictionaries, so that the numbers
// of the others are not known until the next declaration.
func (c *chain) damage() {
	c.attached, c.tail, c.Lost = false, false, true
	c.pending, c.listed = nil, false
}

// attach records that a complete state is known, which the next batches continue.
func (c *chain) attach(version uint64) {
	c.attached, c.tail, c.version = true, false, version
	c.pending, c.listed = nil, false
}

// frame handles a batch or a state, and returns it if it is complete.
func (c *chain) frame(kind byte, payload []byte) (*commit, error) {
	if kind != format.BatchFrame && kind != format.StateFrame {
		return nil, fmt.Errorf("frame has the unknown kind %q", kind)
	}
	h, items, err := c.Batch(payload)
	if err != nil {
		return nil, err
	}
	if !c.seen {
		return nil, errors.New("frame has no declaration")
	}
	return c.advance(kind, h, items), nil
}

// advance handles the head of a batch or a state, and the items that are known of it. It
// returns the commit if the batch or the state is complete.
func (c *chain) advance(kind byte, h keyindex.Head, items []format.Item) *commit {
	if len(c.pending) == 0 {
		c.pending = items // not a copy, because later differences refer to the items
	} else {
		c.pending = append(c.pending, items...)
	}
	c.listed = c.listed || h.Flags&(format.OpenBatch|format.ListedBatch) != 0
	if h.Flags&(format.OpenBatch|format.PartialBatch) != 0 {
		return nil
	}
	done := &commit{Head: h, items: c.pending, state: kind == format.StateFrame, again: h.Era != c.era}
	done.tail = c.tail && !done.state
	if c.listed {
		done.Flags |= format.ListedBatch
	}
	c.pending, c.listed, c.tail = nil, false, false
	c.version, c.era, c.time = h.Version, h.Era, h.Time
	c.attached = c.attached || done.state
	if !c.attached {
		return nil
	}
	return done
}
