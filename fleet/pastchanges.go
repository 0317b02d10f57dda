// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/wire"
)

// PastChange is a change that was read from files.
type PastChange struct {
	// Type is Added, Modified or Deleted.
	Type wire.EventType
	Key  string
	// Time is when the change arrived. Listed means that a relist found it: it happened at
	// some time since the change before, and others may have happened between.
	Time   time.Time
	Listed bool
	// Version is the version of the change.
	Version uint64
	// Object is the state after the change, or the last state of a deleted object. Old is
	// the state before it, nil if the object did not exist or if that state is not known.
	Object, Old *wire.Object
	// manager has the recorded field managers, "" if there are none.
	manager string
}

// Managers returns the field managers that made the change. There is more than one if it is
// not known which of them did. A deletion has none.
func (c *PastChange) Managers() []string {
	switch {
	case c.Type == wire.Deleted:
		return nil
	case c.manager != "":
		return strings.Split(c.manager, ",")
	}
	return c.Object.Managers(c.Old)
}

// PastChanges are the changes of a resource between two times.
type PastChanges struct {
	// Since is when they begin. It is later than requested if the files do not reach back so
	// far.
	Since time.Time

	feed   *Feed
	stored *storedFeed
	until  time.Time
	want   func(key string) bool
	start  *Archived // nil if it is not known
}

// Changes returns the changes of a resource between two times, of the objects whose keys are
// wanted. It reads the state at the beginning. The errors are those of AtTime.
func (f *Feed) Changes(ctx context.Context, since, until time.Time, want func(key string) bool) (*PastChanges, error) {
	start, err := f.AtTime(ctx, since)
	tooOld := (*TooOldError)(nil)
	if errors.As(err, &tooOld) {
		since = tooOld.Oldest
		start, err = f.AtTime(ctx, since)
	}
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, err
	}
	return &PastChanges{Since: since, feed: f, stored: f.files.Load(), until: until, want: want, start: start}, nil
}

// All yields the changes in the order in which they arrived. An error means that changes are
// missing there, or that ctx has ended, which is the last one. It waits while too many other
// states are being read.
func (p *PastChanges) All(ctx context.Context) iter.Seq2[PastChange, error] {
	return func(yield func(PastChange, error) bool) {
		last := pastObjects{start: p.start}
		mine := func(id disk.Identity) bool { return id == p.stored.id }
		for entry, err := range p.stored.archive.entries(ctx, p.stored.cluster, p.Since, p.until, mine) {
			switch {
			case err != nil:
				last = pastObjects{}
				if !yield(PastChange{}, err) {
					return
				}
				continue
			case p.start != nil && !entry.Time.After(p.start.Time):
				continue
			}
			for i := range entry.Changes {
				c := &entry.Changes[i]
				if p.want(c.Key) && !yield(last.change(&entry, c), nil) {
					return
				}
			}
		}
	}
}

// pastObjects has the states of the objects of a resource while its changes are read: those
// of start, if that is known, and those of the objects that have changed since.
type pastObjects struct {
	start   *Archived
	changed map[string]*wire.Object // nil for a deleted object
}

var eventTypes = map[delta.Type]wire.EventType{delta.Added: wire.Added, delta.Updated: wire.Modified, delta.Deleted: wire.Deleted}

// change applies a change, and returns it with the state before it.
func (p *pastObjects) change(entry *disk.Entry, c *disk.Change) PastChange {
	old, changed := p.changed[c.Key]
	if !changed && p.start != nil {
		old, _ = p.start.Get(c.Key)
	}
	if p.changed == nil {
		p.changed = map[string]*wire.Object{}
	}
	if p.changed[c.Key] = c.Object; c.Type == delta.Deleted {
		p.changed[c.Key] = nil
	}
	return PastChange{Type: eventTypes[c.Type], Key: c.Key, Time: entry.Time, Listed: entry.Listed, Version: c.Version, Object: c.Object, Old: old, manager: c.Manager}
}
