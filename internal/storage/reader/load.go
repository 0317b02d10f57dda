// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/wire"
)

// State is a stored state of a mirror: one that the server had.
type State struct {
	// Version is the server's version of the state. A watch can continue there.
	Version uint64
	// Time is when the state, or the last batch that led to it, arrived.
	Time time.Time
	// Objects are the objects in key order. The caller owns the slice.
	Objects []*wire.Object
	// Records are the last batches that led to the state, oldest first, and After is the
	// version before the first of them: nothing is missing between After and Version.
	Records []Record
	After   uint64
	// Restored is the last restore of the server from a backup before the state, nil if none
	// is known. Records has no changes from before it.
	Restored *format.Restored
	// Last means that no later state is stored, although the mirror may have had one. Only
	// a read of the past sets it.
	Last bool
}

// loading follows the frames of one mirror, and collects the state that they lead to. It
// begins at the oldest complete state, so that the state before each change is known.
type loading struct {
	index *Index
	chain chain
	// snapshots are those that the frames have not reached yet, and unreadable the errors
	// of those that cannot be read, by their paths.
	snapshots  []*format.SnapshotFile
	unreadable map[string]error
	// snapshot is the snapshot that the batches change, nil if there is none. changed are
	// the changed items by key, nil if the object was deleted.
	snapshot *format.SnapshotFile
	changed  map[string]*format.Item
	// known means that there is a state. live means that the next batch continues it.
	known, live bool
	version     uint64
	time        time.Time
	// problem is why there is no state, if there should be one.
	problem error
	// restored is the last restore of the server from a backup, nil if none is known.
	restored *format.Restored

	// window are the last batches, of size bytes, and windowAfter is the version before
	// them. Without a limit there is no window.
	window      []*commit
	limit, size int64
	windowAfter uint64

	// seek searches for a state of the past, nil if there is no search. step counts the
	// states, and stop is the step after which nothing is read, 0 for the end of the log.
	seek       *seek
	step, stop int
	// part, if it is not 0, is how many items of the batch at stop belong to the state, whose
	// version is partVersion.
	part        int
	partVersion uint64
	// lost counts the frames and snapshots that could not be read, and removed means that
	// one of them was in a file that is not there any more. Two passes over the same files
	// have the same steps only if lost is the same.
	lost    int
	removed bool
}

// Load returns the stored state of a mirror by an index of all files, with at most window bytes of
// the batches that led to it. Its objects have the kind. If a snapshot is damaged, the batches must
// lead from an older state to it.
func (f *Folder) Load(x *Index, m *Found, kind *wire.Kind, window int64) (*State, error) {
	r := &format.Restorer{Digest: m.Digest, Kind: kind, Dictionaries: f.Dictionaries}
	unreadable := map[string]error{}
	for {
		l := x.loading(m, f.Keys, unreadable)
		l.limit = window
		l.follow(m)
		if !l.known {
			return nil, l.problem
		}
		s, err := l.state(r)
		if err == nil || l.snapshot == nil {
			return s, err
		}
		unreadable[l.snapshot.Path] = err
	}
}

// loading returns a loading of a mirror at the beginning of the index.
func (x *Index) loading(f *Found, keys format.Keys, unreadable map[string]error) *loading {
	l := &loading{index: x, chain: chain{keys: keys}, changed: map[string]*format.Item{}, unreadable: unreadable}
	if x.object != nil {
		l.chain.Only = x.object.key
	}
	_, l.problem = x.DamagedSnapshot(f.Digest)
	for _, s := range f.Snapshots {
		if s.After.Segment > x.until {
			break
		}
		if s.After.Segment >= x.first {
			l.snapshots = append(l.snapshots, s)
		} else if l.problem == nil {
			l.problem = fmt.Errorf("log %d is missing", s.After.Segment)
		}
	}
	return l
}

// follow reads the frames and the places of the snapshots of the mirror.
func (l *loading) follow(f *Found) {
	var file *os.File
	defer func() { _ = file.Close() }()
	var opened uint64
	var failed error
	for _, ref := range f.Frames {
		if opened != ref.Segment {
			_ = file.Close()
			file, failed = l.index.files.Open(filepath.Join(l.index.folder, format.SegmentName(ref.Segment)))
			opened = ref.Segment
		}
		if l.reach(ref.Position); l.stopped() {
			return
		}
		err := failed
		if err == nil {
			err = l.frame(file, ref)
		}
		if err != nil {
			l.damage(ref.Position, err)
		}
		if l.stopped() {
			return
		}
	}
	l.reach(format.Position{Segment: math.MaxUint64, Offset: math.MaxInt64})
}

func (l *loading) stopped() bool { return l.stop != 0 && l.step >= l.stop }

// reach handles the snapshots up to a place in the log.
func (l *loading) reach(p format.Position) {
	for len(l.snapshots) > 0 && !p.Before(l.snapshots[0].After) && !l.stopped() {
		s := l.snapshots[0]
		l.snapshots = l.snapshots[1:]
		if l.live && l.version == s.Version && s.After.Offset <= l.index.ends[s.After.Segment] {
			continue // the batches have led to the same state
		}
		if err := l.unreadable[s.Path]; err != nil {
			l.damage(s.After, err)
			continue
		}
		l.restore(s.Restored)
		l.begin(s.Version, s.Time)
		l.snapshot = s
		l.chain.attach(s.Version)
		l.arrive()
	}
}

// begin begins at a complete state.
func (l *loading) begin(version uint64, at time.Time) {
	l.interrupt(fmt.Errorf("the log does not lead from version %d to the complete state of version %d",
		l.version, version))
	l.snapshot, l.changed = nil, map[string]*format.Item{}
	l.known, l.live, l.problem = true, true, nil
	l.version, l.time = version, at
	l.cut()
}

// frame handles one frame.
func (l *loading) frame(file *os.File, ref frameRef) error {
	if ref.kind == format.DamagedFrame {
		return format.ErrChecksum
	}
	var payload []byte
	var err error
	if ref.head == nil {
		if payload, err = format.ReadAt(file, ref.Offset+format.FrameSize, ref.size); err != nil {
			return err
		}
	}
	if ref.kind == format.MirrorFrame {
		return l.declare(payload)
	}
	if l.chain.locked != nil {
		return l.chain.locked
	}
	var done *commit
	if ref.head != nil {
		done = l.chain.advance(ref.kind, *ref.head, nil)
	} else {
		done, err = l.chain.frame(ref.kind, payload)
	}
	if done != nil {
		l.commit(done)
	}
	return err
}

// declare handles a declaration.
func (l *loading) declare(payload []byte) error {
	var d format.Declaration
	if err := json.Unmarshal(payload, &d); err != nil {
		return err
	}
	if err := l.chain.declare(&d); err != nil {
		return err
	}
	l.restore(d.Restored)
	live := l.live
	switch d.Link {
	case format.Continues:
	case format.Resumes:
		live = l.known && l.version == d.Version
	default:
		live = false
	}
	if !live {
		l.interrupt(fmt.Errorf("batches between the versions %d and %d were dropped", l.version, d.Version))
	}
	l.live = live
	return nil
}

// damage handles a lost frame or snapshot: the state is not usable, unless a complete one
// follows.
func (l *loading) damage(at format.Position, err error) {
	l.problem = fmt.Errorf("log %d at %d: %w", at.Segment, at.Offset, err)
	l.lost++
	l.removed = l.removed || errors.Is(err, fs.ErrNotExist)
	l.chain.damage()
	l.interrupt(l.problem)
	l.known, l.live = false, false
}

// restore records a restore of the server from a backup, unless it is known. The versions of
// the window are from before it.
func (l *loading) restore(r *format.Restored) {
	if r == nil || l.restored != nil && l.restored.Version == r.Version && l.restored.Time.Equal(r.Time) {
		return
	}
	next := *r
	if l.restored != nil {
		next.Former = l.restored.Former
	}
	if l.known {
		next.Former = append(next.Former, l.windowAfter, l.version)
	}
	for _, c := range l.window {
		next.Former = append(next.Former, c.Version)
		for i := range c.items {
			next.Former = append(next.Former, c.items[i].Version)
		}
	}
	l.restored = &next
}

// cut begins the window anew.
func (l *loading) cut() {
	l.window, l.size, l.windowAfter = nil, 0, l.version
}

// commit applies a batch or a complete state.
func (l *loading) commit(c *commit) {
	switch {
	case c.state && l.live && l.version == c.Version:
		return // the batches have led to the same state
	case c.state:
		l.begin(c.Version, c.Time)
	case c.tail && l.live:
		l.interrupt(errors.New("the beginning of a relist is missing"))
		l.live = false
	}
	if !l.live {
		return
	}
	l.passBatch(c)
	if l.part > 0 && l.step+1 == l.stop && l.part <= len(c.items) {
		c.items, c.Version = c.items[:l.part], l.partVersion
	}
	if l.limit > 0 && !c.state {
		c.olds = make([]*format.Item, len(c.items))
	}
	for n := range c.items {
		i := &c.items[n]
		if c.olds != nil {
			c.olds[n] = l.current(i.Key)
		}
		if l.changed[i.Key] = i; i.Deleted() {
			l.changed[i.Key] = nil
		}
	}
	if c.again && !c.state {
		last := l.version
		if l.restored != nil {
			last = max(last, l.restored.Version)
		}
		l.restore(&format.Restored{Version: last, Time: c.Time})
	}
	l.version, l.time = c.Version, c.Time
	l.record(c)
	l.arrive()
}

// current returns the item of an object before a change, nil if there is none. It returns
// an awaited one if the object has not changed since the snapshot.
func (l *loading) current(key string) *format.Item {
	i, ok := l.changed[key]
	if !ok && l.snapshot != nil {
		return &format.Item{Key: key, Awaited: true}
	}
	return i
}

// record adds a batch to the window.
func (l *loading) record(c *commit) {
	switch {
	case c.again:
		l.cut()
		return
	case c.olds == nil:
		return
	}
	l.window = append(l.window, c)
	l.size += c.size()
	for l.size > l.limit {
		l.windowAfter = l.window[0].Version
		l.size -= l.window[0].size()
		l.window[0], l.window = nil, l.window[1:]
	}
}

// awaited returns the items of the window that wait for the snapshot, by key.
func (l *loading) awaited() map[string]*format.Item {
	all := map[string]*format.Item{}
	for _, c := range l.window {
		for _, i := range c.olds {
			if i != nil && i.Awaited {
				all[i.Key] = i
			}
		}
	}
	return all
}

// state makes the objects. It reads the snapshot one chunk at a time, so that each can be
// freed.
func (l *loading) state(r *format.Restorer) (*State, error) {
	s := &State{Version: l.version, Time: l.time, After: l.version, Restored: l.restored}
	add := func(i *format.Item) error {
		if i == nil || r.Want != nil && !r.Want(i.Key) {
			return nil
		}
		o, err := r.Object(i)
		s.Objects = append(s.Objects, o)
		return err
	}
	changed, last, awaited := slices.Sorted(maps.Keys(l.changed)), "", l.awaited()
	each := func(i *format.Item) error {
		if i.Key <= last {
			return errors.New("snapshot is not in order")
		}
		last = i.Key
		for ; len(changed) > 0 && changed[0] < i.Key; changed = changed[1:] {
			if err := add(l.changed[changed[0]]); err != nil {
				return err
			}
		}
		if old := awaited[i.Key]; old != nil {
			var err error
			old.Loaded, err = r.Object(i)
			old.Failed = err != nil
		}
		if _, ok := l.changed[i.Key]; ok {
			return nil // it is the next one of changed
		}
		return add(i)
	}
	if l.snapshot != nil && (l.chain.Only == "" || len(changed) == 0) {
		if r.Want == nil && l.chain.Only == "" {
			s.Objects = make([]*wire.Object, 0, max(0, min(l.snapshot.Objects, int(l.snapshot.Size/8))))
		}
		if err := l.snapshot.Items(l.index.files, l.chain.keys, l.chain.Only, each); err != nil {
			return nil, err
		}
	}
	for _, key := range changed {
		if err := add(l.changed[key]); err != nil {
			return nil, err
		}
	}
	l.records(r, s)
	return s, nil
}

// records makes the records of a state. The state does not depend on them: if one cannot
// be made, the window begins after it.
func (l *loading) records(r *format.Restorer, s *State) {
	if l.limit <= 0 {
		return
	}
	s.After = l.windowAfter
	for _, c := range l.window {
		rec, err := recordOf(r, c)
		if err != nil {
			s.Records, s.After = nil, c.Version
			continue
		}
		s.Records = append(s.Records, rec)
	}
}

// size returns about how many bytes a batch takes in memory.
func (c *commit) size() int64 {
	n := int64(200)
	for i := range c.items {
		n += c.items[i].Size() + int64(2*len(c.items[i].Key)) + 200
	}
	return n
}
