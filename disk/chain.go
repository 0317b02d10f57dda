// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"errors"
	"fmt"
	"time"
)

// link is how a mirror's frames continue those before a declaration.
type link string

const (
	// continues means that nothing is missing before the declaration.
	continues link = "continues"
	// resumes means that another process wrote the frames before, and that this one began
	// with the state that they lead to.
	resumes link = "resumes"
	// restarts means that changes are missing before the declaration. A complete state at
	// the declared version follows, in the log or as a snapshot.
	restarts link = "restarts"
)

// declaration is the payload of a mirrorFrame.
type declaration struct {
	Identity Identity `json:"identity"`
	Link     link     `json:"link"`
	// Version and Era are those of the mirror before the frames that follow.
	Version uint64 `json:"version"`
	Era     uint64 `json:"era"`
	// Open means that a relist began before the declaration and goes on.
	Open bool `json:"open,omitempty"`
	// Key is the encrypted data key of the frames that follow, if they are encrypted.
	Key []byte `json:"key,omitempty"`
	// Time is when the state of Version arrived. Older programs write it only if the declaration
	// restarts.
	Time time.Time `json:"time,omitzero"`
	// Gap is the last state that was written before the missing changes of a declaration
	// that restarts. It is nil if nothing of the mirror was stored before.
	Gap *stamp `json:"gap,omitempty"`
	// Restored is the last restore of the server from a backup before the frames that
	// follow, nil if there was none.
	Restored *Restored `json:"restored,omitempty"`
}

// stamp is the version and the time of a state. Both are zero if they are not known.
type stamp struct {
	Version uint64    `json:"version"`
	Time    time.Time `json:"time,omitzero"`
}

// Restored is a restore of the server from a backup. A version up to Version may be one from
// before the restore, when it had another meaning.
type Restored struct {
	// Version is the highest version that the mirror had before.
	Version uint64 `json:"version"`
	// Time is when the first state after the restore arrived.
	Time time.Time `json:"time"`
	// Former are versions that the mirror had before, as far as the files that were read
	// have them, in no order.
	Former []uint64 `json:"-"`
}

// position is a place in the log of a cluster.
type position struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
}

func (p position) before(other position) bool {
	return p.Segment < other.Segment || p.Segment == other.Segment && p.Offset < other.Offset
}

// frameRef is the place of a frame.
type frameRef struct {
	position
	size int
	kind byte
	// head is the beginning of a batch or state that is not read, because it does not concern
	// the object of [index.object]. It is nil for all other frames.
	head *batchHead
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
	keys Keys
	decoder
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
	pending []item
	listed  bool
}

// commit is a complete batch, or a complete state.
type commit struct {
	batchHead
	items []item
	state bool
	// again means that the server has gone back to an older version, so that the versions
	// before have another meaning. tail means that items lacks the beginning of the batch.
	again, tail bool
	// olds are the states of the objects before the items, nil for objects that did not
	// exist. Only a load that returns records sets them.
	olds []*item
}

// declare handles a declaration. It returns an error if batches are missing before it that
// should be there.
func (c *chain) declare(d *declaration) error {
	c.decoder, c.locked = decoder{only: c.only}, nil
	if d.Key != nil {
		c.seal, c.locked = openDataKey(c.keys, d.Key)
	}
	seen := c.seen
	c.seen = true
	switch {
	case d.Link == continues && c.attached:
		if d.Version != c.version || d.Open != c.listed {
			return fmt.Errorf("batches between the versions %d and %d are missing", c.version, d.Version)
		}
		return nil
	case d.Link == continues && seen:
		return nil // nothing is known since the damage
	case d.Link == resumes && c.attached && d.Version == c.version:
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
func (c *chain) gapBefore(d *declaration, since time.Time) *stamp {
	switch {
	case !c.seen && d.Link == restarts && (d.Gap == nil || !d.Gap.Time.After(since)):
		return d.Gap
	case !c.seen && d.Time.After(since):
		return &stamp{} // the segments with the changes up to then were removed
	case d.Link == continues || !c.attached || d.Link == resumes && d.Version == c.version:
		return nil
	}
	return &stamp{c.version, c.time}
}

// damage records that a frame is lost. It may have named dictionaries, so that the numbers
// of the others are not known until the next declaration.
func (c *chain) damage() {
	c.attached, c.tail, c.lost = false, false, true
	c.pending, c.listed = nil, false
}

// attach records that a complete state is known, which the next batches continue.
func (c *chain) attach(version uint64) {
	c.attached, c.tail, c.version = true, false, version
	c.pending, c.listed = nil, false
}

// frame handles a batch or a state, and returns it if it is complete.
func (c *chain) frame(kind byte, payload []byte) (*commit, error) {
	if kind != batchFrame && kind != stateFrame {
		return nil, fmt.Errorf("frame has the unknown kind %q", kind)
	}
	h, items, err := c.batch(payload)
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
func (c *chain) advance(kind byte, h batchHead, items []item) *commit {
	c.pending = append(c.pending, items...)
	c.listed = c.listed || h.flags&(openBatch|listedBatch) != 0
	if h.flags&(openBatch|partialBatch) != 0 {
		return nil
	}
	done := &commit{batchHead: h, items: c.pending, state: kind == stateFrame, again: h.era != c.era, tail: c.tail && kind != stateFrame}
	if c.listed {
		done.flags |= listedBatch
	}
	c.pending, c.listed, c.tail = nil, false, false
	c.version, c.era, c.time = h.version, h.era, h.time
	c.attached = c.attached || done.state
	if !c.attached {
		return nil
	}
	return done
}
