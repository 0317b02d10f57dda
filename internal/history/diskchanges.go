// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/wire"
)

// PastChange is a change that was read from files.
type PastChange struct {
	// Type is Added, Modified or Deleted.
	Type watch.EventType
	Key  string
	// Time is when the change arrived. Where changes are missing it is the time of the last
	// known state before them, or the beginning of the period. Listed means that a relist found
	// it: it happened at some time since the change before, and others may have happened
	// between.
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

// Managers returns the field managers that made the change. Several are returned if the writer
// is ambiguous. A deletion has none.
func (c *PastChange) Managers() []string {
	switch {
	case c.Type == watch.Deleted:
		return nil
	case c.manager != "":
		return strings.Split(c.manager, ",")
	}
	return c.Object.Managers(c.Old)
}

const (
	// partBytes is about how many bytes a part of [PastChanges] has, and itemBytes is how many
	// of them each item has besides its objects.
	partBytes = 4 << 20
	itemBytes = 200
	// objectPart is how many bytes a part has at most if a query is for one object: another part
	// of its changes, and the state before them, are found by the index.
	objectPart = 256 << 10
	// minPart is how many bytes a part has at least, however many are read at the same time.
	minPart = 8 << 10
)

// PastChanges are the changes of a resource between two times. They are read in parts, each
// with the state of the wanted objects before it, so that a reader that is slow holds no more
// than a part, and does not make others wait. The price is that a long sequence reads one state
// for each part.
type PastChanges struct {
	// Since is when they begin. It is later than requested if the files do not reach back so
	// far.
	Since time.Time

	feed  *Feed
	files *feedFiles
	until time.Time
	of    Wanted
	// part has what was read and not yielded yet, of size bytes. more means that there is more
	// in the files.
	part []pastItem
	size int
	more bool
	// whole is about how many bytes the part of a single reader has, and most how many the next
	// part has.
	whole, most int
	// last is the time of the last entry that was read, zero before the first, and read is
	// how many items were, from the first entry of that time on.
	last time.Time
	read int
}

// pastItem is a change, or the error for changes that are missing.
type pastItem struct {
	PastChange
	err error
}

// PastQuery selects changes of the past.
type PastQuery struct {
	Since, Until time.Time
	Wanted
	// Readers is how many [PastChanges] the caller reads at the same time, see
	// [PastChanges.Share]. 0 means 1.
	Readers int
	// PartBytes is about how many bytes are read at once and held until they are yielded. It
	// is at least 8 KiB, and less for a single object. 0 means 4 MiB.
	PartBytes int
}

// Changes returns the changes of a resource that a query selects. It reads the state at the
// beginning and the first part. The errors are those of AtTime.
func (f *Feed) Changes(ctx context.Context, q PastQuery) (*PastChanges, error) {
	p := &PastChanges{
		Since: q.Since, feed: f, files: f.files.Load(), until: q.Until, of: q.Wanted,
	}
	if p.files == nil {
		return nil, f.notStored()
	}
	p.whole = cmp.Or(q.PartBytes, partBytes)
	if q.Key != "" {
		p.whole = min(p.whole, objectPart)
	}
	p.Share(q.Readers)
	if err := p.fill(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Share divides the size of the parts that are read from now on by the number of [PastChanges]
// that the caller reads at the same time. So together they hold about as much as one, unless
// they are more than 500, or more than 30 for single objects: a part has at least 8 KiB.
func (p *PastChanges) Share(readers int) {
	p.most = min(p.whole, max(p.whole/max(readers, 1), minPart))
}

// Held returns how many bytes the part that was read last has, and whether there is another one.
func (p *PastChanges) Held() (bytes int, more bool) { return p.size, p.more }

// All yields the changes in the order in which they arrived. An error marks a gap at this
// position, and iteration goes on; the error of ctx is the last item. It waits while too many
// other states are being read. None of them waits for the caller.
func (p *PastChanges) All(ctx context.Context) iter.Seq2[PastChange, error] {
	return func(yield func(PastChange, error) bool) {
		for {
			for len(p.part) > 0 {
				item := p.part[0]
				p.part[0] = pastItem{}
				p.part = p.part[1:]
				if !yield(item.PastChange, item.err) {
					return
				}
			}
			if !p.more {
				return
			}
			if err := p.fill(ctx); err != nil {
				p.more = false
				yield(PastChange{Time: p.readUntil()}, err)
				return
			}
		}
	}
}

// fill reads the next part. One slot is for the state before it, and for its changes.
func (p *PastChanges) fill(ctx context.Context) error {
	leave, err := p.files.reader.slots.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	start, err := p.before(ctx)
	if err != nil {
		return err
	}
	p.part = nil
	p.size = 0
	p.more = false
	r := partReader{
		PastChanges: p, objects: pastObjects{start: start}, skip: p.read, resumed: !p.last.IsZero(),
	}
	since := p.Since
	if r.resumed {
		since = p.last
	}
	for entry, err := range entriesUntil(ctx, p.entries(since), p.until) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			r.missing(err)
		case start != nil && !entry.Time.After(start.Time):
			continue
		default:
			r.add(&entry)
		}
		if p.more {
			return nil
		}
	}
	r.arrive(time.Time{})
	return nil
}

// entries returns the entries since a time.
func (p *PastChanges) entries(since time.Time) iter.Seq2[storage.Entry, error] {
	if p.of.Key == "" {
		return p.files.cluster.History(since, func(id storage.Identity) bool { return id == p.files.id })
	}
	until := p.until
	if time.Since(until) < nearNow {
		until = time.Time{} // see beyond
	}
	return p.files.cluster.ObjectHistory(p.files.id, p.of.Key, since, until)
}

// readUntil returns the time up to which the changes were read.
func (p *PastChanges) readUntil() time.Time {
	if p.last.After(p.Since) {
		return p.last
	}
	return p.Since
}

// before returns the state before the next part, nil if it is not known.
func (p *PastChanges) before(ctx context.Context) (*Archived, error) {
	at := p.Since
	if !p.last.IsZero() {
		at = p.last.Add(-1)
	}
	start, err := p.wanted(ctx, at)
	tooOld := (*TooOldError)(nil)
	if errors.As(err, &tooOld) && p.last.IsZero() {
		p.Since = tooOld.Oldest
		start, err = p.wanted(ctx, p.Since)
	}
	if errors.Is(err, ErrIncomplete) || errors.As(err, &tooOld) && !p.last.IsZero() {
		return nil, nil
	}
	return start, err
}

// wanted returns the state of the wanted objects at a time.
func (p *PastChanges) wanted(ctx context.Context, at time.Time) (*Archived, error) {
	moment := storage.Moment{Time: at}
	if s := p.files.reader.find(p.feed, moment); s != nil {
		return s, nil
	}
	return p.feed.state(ctx, p.files, moment, p.of)
}

// partReader reads one part.
type partReader struct {
	*PastChanges
	objects pastObjects
	// resumed means that the part is not the first, and that the entry with which the one
	// before it ended is not read again yet. skip is how many items the parts before have.
	resumed bool
	skip    int
}

// errRemoved means that files were removed while a slow reader read them.
var errRemoved = errors.New("the files were removed before their changes could be read")

// arrive prepares for the entry with the given time. The zero time is the end of the files. If a
// resumed read does not find the entry where the last part ended, the entry was removed, and arrive
// adds a gap.
func (r *partReader) arrive(at time.Time) {
	if r.resumed && !at.Equal(r.last) {
		r.skip = 0
		r.put(r.gap(errRemoved), 0)
	}
	r.resumed = false
	if !at.IsZero() && !at.Equal(r.last) {
		r.last = at
		r.read = 0
		r.skip = 0
	}
}

// gap returns the item for missing changes. Its time is the latest of three: the beginning of
// the period, the last entry that was read, and Since of the error if it is a
// [storage.GapError].
func (r *partReader) gap(err error) pastItem {
	item := pastItem{err: err}
	item.Time = r.readUntil()
	if gap := (*storage.GapError)(nil); errors.As(err, &gap) && gap.Since.After(item.Time) {
		item.Time = gap.Since
	}
	return item
}

// missing handles that changes are missing.
func (r *partReader) missing(err error) {
	r.objects = pastObjects{}
	if !r.resumed { // else it is before the part
		r.put(r.gap(err), 0)
	}
}

// add adds the changes of an entry that are wanted, up to the end of the part.
func (r *partReader) add(entry *storage.Entry) {
	r.arrive(entry.Time)
	for i := range entry.Changes {
		c := &entry.Changes[i]
		if !r.of.includes(c.Key) {
			continue
		}
		change := r.objects.change(entry, c)
		size := change.Object.Size()
		if change.Old != nil {
			size += change.Old.Size()
		}
		if r.put(pastItem{PastChange: change}, size); r.more {
			return
		}
	}
}

// put adds an item, unless a part before has it.
func (r *partReader) put(item pastItem, size int) {
	if r.skip > 0 {
		r.skip--
		return
	}
	r.read++
	r.part = append(r.part, item)
	r.size += size + itemBytes
	r.more = r.size >= r.most
}

// pastObjects has the states of the objects of a resource while its changes are read: those
// of start, if that is known, and those of the objects that have changed since.
type pastObjects struct {
	start   *Archived
	changed map[string]*wire.Object // nil for a deleted object
}

var eventTypes = map[delta.Type]watch.EventType{
	delta.Added: watch.Added, delta.Updated: watch.Modified, delta.Deleted: watch.Deleted,
}

// change applies a change, and returns it with the state before it.
func (p *pastObjects) change(entry *storage.Entry, c *storage.Change) PastChange {
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
	return PastChange{
		Type: eventTypes[c.Type], Key: c.Key, Time: entry.Time, Listed: entry.Listed, Version: c.Version,
		Object: c.Object, Old: old, manager: c.Manager,
	}
}
