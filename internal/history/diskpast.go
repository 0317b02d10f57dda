// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/wire"
)

const (
	// diskReads is how many reads of files may run at once. Each read takes a CPU core until
	// it ends, and the memory of a whole resource unless it is for one object. A read never
	// waits for a client.
	diskReads = 2
	// maxKept is how many states are kept for keptAge after their last use, for the
	// next pages of a list.
	maxKept = 2
	keptAge = time.Minute
	// readTries and readWait are how often, and after which time, a state is read again
	// that may not be written yet.
	readTries = 5
	readWait  = 50 * time.Millisecond
)

var (
	// ErrNotStored means that there are no files from which the past of a resource can be
	// read.
	ErrNotStored = errors.New("the past is not stored")
	// ErrIncomplete means that changes are missing in the files, so that the state is not
	// known.
	ErrIncomplete = errors.New("the state is not known: changes are missing in the files")
)

// TooOldError means that the files do not reach back to a moment.
type TooOldError struct {
	// Oldest is the time of the oldest state in the files.
	Oldest time.Time
	err    error
}

// Error implements error.
func (e *TooOldError) Error() string { return e.err.Error() }

// Archived is a state of the past that was read from files.
type Archived struct {
	// Version is the server's version of the state, and Time is when it arrived.
	Version uint64
	Time    time.Time
	objects []*wire.Object // in key order
}

// Len returns the number of objects.
func (a *Archived) Len() int { return len(a.objects) }

// Get returns the object with a key.
func (a *Archived) Get(key string) (*wire.Object, bool) {
	if i, ok := a.find(key); ok {
		return a.objects[i], true
	}
	return nil, false
}

// find returns where the object with a key is, or would be.
func (a *Archived) find(key string) (int, bool) {
	return slices.BinarySearchFunc(a.objects, key, func(o *wire.Object, key string) int {
		return cmp.Compare(o.Key(), key)
	})
}

// Range yields the objects whose keys begin with prefix, in key order and from the first key
// after a given one.
func (a *Archived) Range(prefix, after string) iter.Seq2[string, *wire.Object] {
	return func(yield func(string, *wire.Object) bool) {
		from, found := a.find(max(prefix, after))
		if found && after != "" && a.objects[from].Key() == after {
			from++
		}
		for _, o := range a.objects[from:] {
			if !strings.HasPrefix(o.Key(), prefix) || !yield(o.Key(), o) {
				return
			}
		}
	}
}

// Candidates reports that the objects have no index of labels.
func (a *Archived) Candidates(labels.Selector, string, string) (iter.Seq2[string, *wire.Object], bool) {
	return nil, false
}

// DiskReader reads the past of all feeds of a fleet from files. All methods are safe for
// concurrent use.
type DiskReader struct {
	// logger receives a line for each read that finds damage or missing changes.
	logger *slog.Logger
	slots  admission.Slots
	// mu guards kept, the states that were used last.
	mu   sync.Mutex
	kept []keptState
}

type keptState struct {
	*Archived
	feed *Feed
	at   storage.Moment
	used time.Time
}

// NewDiskReader returns a reader that logs damage and missing changes.
func NewDiskReader(logger *slog.Logger) *DiskReader {
	return &DiskReader{logger: logger, slots: make(admission.Slots, diskReads)}
}

// feedFiles are the files of a feed.
type feedFiles struct {
	reader  *DiskReader
	cluster *storage.Cluster
	name    string // of the cluster
	id      storage.Identity
	// tooOld is the last error about a moment before the oldest state, nil if there was none.
	tooOld atomic.Pointer[storage.TooOldError]
}

// AtTime returns the state that the copy had at a time, from files, with the objects that are
// wanted. The error is [ErrNotStored], [ErrNotReady] if the time is so recent that its state is
// not written yet, [ErrIncomplete], a [*TooOldError], or that of ctx: it waits while too many
// other states are being read.
func (f *Feed) AtTime(ctx context.Context, at time.Time, of Wanted) (*Archived, error) {
	return f.archived(ctx, storage.Moment{Time: at}, of)
}

// AtVersion returns the state that the server had at a version, from files. Its errors are
// those of AtTime, and [ErrExpired] for a version that may be from before a restore of the
// server.
func (f *Feed) AtVersion(ctx context.Context, version uint64) (*Archived, error) {
	if f.ambiguous(version) {
		return nil, f.expired(version)
	}
	return f.archived(ctx, storage.Moment{Version: version}, Wanted{})
}

// Reaches reports whether the files may have the state at a version. It does not read them,
// and does not wait.
func (f *Feed) Reaches(version uint64) bool {
	files := f.files.Load()
	return files != nil && !f.ambiguous(version) && f.forgets(files, storage.Moment{Version: version}) == nil
}

// forgets returns an error if it is known that the files do not reach back to a moment, which
// they will not do later either, unless the server goes back to a lower version.
func (f *Feed) forgets(files *feedFiles, at storage.Moment) error {
	e := files.tooOld.Load()
	switch {
	case e == nil:
		return nil
	case at.Version != 0 && (at.Version >= e.Version || f.wasRestored()):
		return nil
	case at.Version == 0 && !at.Time.Before(e.Time):
		return nil
	}
	cause := &storage.TooOldError{Identity: e.Identity, Moment: at, Version: e.Version, Time: e.Time}
	return &TooOldError{e.Time, cause}
}

func (f *Feed) wasRestored() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.era.restored != nil
}

func (f *Feed) archived(ctx context.Context, at storage.Moment, of Wanted) (*Archived, error) {
	files := f.files.Load()
	if files == nil {
		return nil, f.notStored()
	}
	d := files.reader
	if s := d.find(f, at); s != nil {
		return s, nil
	}
	if err := f.forgets(files, at); err != nil {
		return nil, err
	}
	leave, err := d.slots.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if s := d.find(f, at); s != nil {
		return s, nil // another request has read it meanwhile
	}
	state, err := f.state(ctx, files, at, of)
	if err == nil && of.Key == "" && of.Keys == nil {
		d.keep(keptState{state, f, at, time.Now()})
	}
	return state, err
}

func (f *Feed) notStored() error {
	return fmt.Errorf("%s: %w", f.resource.GroupResource(), ErrNotStored)
}

// Wanted selects objects of a resource. The zero value selects all.
type Wanted struct {
	// Key selects the object with a key. Where the files have an index, only what concerns that
	// object is read.
	Key string
	// Keys selects the objects by their keys if Key is "", and nil all of them.
	Keys func(key string) bool
}

func (w *Wanted) includes(key string) bool {
	return w.Key == key || w.Key == "" && (w.Keys == nil || w.Keys(key))
}

// state reads the selected objects of a state. The caller has a slot.
func (f *Feed) state(ctx context.Context, files *feedFiles, at storage.Moment, of Wanted) (*Archived, error) {
	s, err := f.read(ctx, files, at, of)
	tooOld, rejected := (*storage.TooOldError)(nil), (*storage.Rejection)(nil)
	switch {
	case errors.As(err, &tooOld):
		files.tooOld.Store(tooOld)
		return nil, &TooOldError{tooOld.Time, err}
	case errors.As(err, &rejected):
		files.reader.logger.Warn("a state of the past cannot be read from files",
			"cluster", files.name, "resource", f.resource.GroupResource(), "err", err)
		return nil, ErrIncomplete
	case err != nil:
		return nil, err
	}
	return &Archived{Version: s.Version, Time: s.Time, objects: s.Objects}, nil
}

// ambiguous reports whether a version can be one from before the server was restored.
func (f *Feed) ambiguous(version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.Now()
	return err != nil || f.era.mayPredateRestore(version, now.Version)
}

// read reads a state. If it is the last one in the files, and the copy has a newer one, then
// the state of the moment may not be written yet.
func (f *Feed) read(
	ctx context.Context, files *feedFiles, at storage.Moment, of Wanted,
) (s *storage.State, err error) {
	for tries := readTries; ; tries-- {
		if of.Key != "" {
			s, err = files.cluster.ObjectAt(files.id, at.Time, of.Key)
		} else {
			s, err = files.cluster.AtKeys(files.id, at, of.Keys)
		}
		if err != nil || !s.Last || at.Version == s.Version {
			return s, err
		}
		now, err := f.Now()
		switch {
		case err != nil:
			return nil, err
		case now.Version == s.Version:
			return s, nil
		case tries == 0:
			return nil, fmt.Errorf("%s at %v: %w", f.resource.GroupResource(), at, ErrNotReady)
		}
		if err := timer.Sleep(ctx, readWait); err != nil {
			return nil, err
		}
	}
}

// find returns a state that is kept, nil if it is not.
func (d *DiskReader) find(f *Feed, at storage.Moment) *Archived {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.kept {
		if k := &d.kept[i]; k.feed == f && (k.at == at || at.Version == k.Version) {
			k.used = time.Now()
			return k.Archived
		}
	}
	return nil
}

// keep adds a state. If there are too many, it drops the least recently used one.
func (d *DiskReader) keep(k keptState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = append(d.kept, k)
	slices.SortStableFunc(d.kept, func(a, b keptState) int { return a.used.Compare(b.used) })
	if len(d.kept) > maxKept {
		d.kept = slices.Delete(d.kept, 0, 1)
	}
}

// Expire drops the states that have not been used for some time.
func (d *DiskReader) Expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = slices.DeleteFunc(d.kept, func(k keptState) bool { return time.Since(k.used) > keptAge })
}

// A period that ended less than nearNow ago counts as ending now.
const nearNow = 10 * time.Second

// beyond reports whether an entry, or a gap, is after a period. An entry from the future was
// written before the clock was set back, and belongs to a period that ends now.
func beyond(entry *storage.Entry, err error, until time.Time) bool {
	at, gap := entry.Time, (*storage.GapError)(nil)
	switch {
	case errors.As(err, &gap):
		at = gap.Since
	case err != nil:
		return false
	}
	now := time.Now()
	return at.After(until) && (!at.After(now) || now.Sub(until) >= nearNow)
}

// entries yields the entries between two times of the files of a cluster, of the resources
// that are wanted. An error marks a gap at this position, and iteration goes on; the error of
// ctx is the last item. It waits while too many others read the past, and then they wait
// for the caller.
func (d *DiskReader) entries(
	ctx context.Context, files *storage.Cluster, since, until time.Time, want func(storage.Identity) bool,
) iter.Seq2[storage.Entry, error] {
	return func(yield func(storage.Entry, error) bool) {
		leave, err := d.slots.Enter(ctx)
		if err != nil {
			yield(storage.Entry{}, err)
			return
		}
		defer leave()
		entriesUntil(ctx, files.History(since, want), until)(yield)
	}
}

// entriesUntil yields entries up to a time, or the error of ctx.
func entriesUntil(
	ctx context.Context, entries iter.Seq2[storage.Entry, error], until time.Time,
) iter.Seq2[storage.Entry, error] {
	return func(yield func(storage.Entry, error) bool) {
		for entry, err := range entries {
			if ctx.Err() != nil {
				yield(storage.Entry{}, context.Cause(ctx))
				return
			}
			if beyond(&entry, err, until) || !yield(entry, err) {
				return
			}
		}
	}
}
