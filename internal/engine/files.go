// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// Stored configures the files of an engine. At the beginning of a run the engine loads the
// state that they have, and follows the changes since, instead of listing. Until it has caught
// up with the server, [Life.Synced] is not closed, readers do not start, and [Life.Snapshot]
// returns the stored state with the changes since.
type Stored struct {
	// Turn, if it is not nil, is called before Open, and may wait. The engine calls done
	// when the state is loaded. If Turn fails, the engine lists, and stores nothing in this
	// run.
	Turn func(ctx context.Context) (done func(), err error)
	// Open opens the files. The packer is nil if objects are not packed. If Open fails
	// because the server cannot be reached or fails, it is called again, with pauses that
	// grow to 30 seconds. If it fails otherwise, the engine lists, and stores nothing in
	// this run.
	Open func(ctx context.Context, packer *objectpack.Packer) (*storage.Mirror, error)
	// Window limits the stored changes to load, in bytes. Default: none.
	Window int64
	// Loaded, if it is not nil, is called with the stored state, and the changes that led to
	// it, before the first call of [Options.Tap].
	Loaded func(*storage.State)
}

// maxOpenWait limits the pause between two tries to open files.
const maxOpenWait = 30 * time.Second

// files are the files of one life.
type files struct {
	stored *Stored
	logger *slog.Logger
	// mirror is nil before open, and if the files cannot be used. The life's writing guards
	// it.
	mirror  *storage.Mirror
	writers writers
	// vague means that the last list could not read the keys of all objects. The life's writing
	// guards it.
	vague bool
}

// note records whether a list among the deltas is vague.
func (f *files) note(deltas delta.Deltas[*wire.Object]) {
	for i := range deltas {
		if d := &deltas[i]; d.Listed {
			f.vague = d.Vague
		}
	}
}

// open opens the files and loads the state. It returns nil if there is none.
func (f *files) open(ctx context.Context, packer *objectpack.Packer) *storage.State {
	if f.stored == nil {
		return nil
	}
	done, m, err := f.stored.turn(ctx, packer)
	for wait := time.Second; err != nil && unreachable(err) && ctx.Err() == nil; wait = min(2*wait, maxOpenWait) {
		// The informer could not list either. If it gave up its files, it would list when
		// the server is back, together with every other program that has restarted.
		f.logger.Warn("stored state is not used yet: the server does not answer", "err", err, "retry", wait)
		if timer.Sleep(ctx, wait) != nil {
			return nil
		}
		done, m, err = f.stored.turn(ctx, packer)
	}
	if err != nil {
		if ctx.Err() == nil {
			f.logger.Warn("objects will not be stored", "err", err)
		}
		return nil
	}
	defer done()
	f.mirror = m
	began := time.Now()
	s, err := m.Load(f.stored.Window)
	rejected := (*storage.Rejection)(nil)
	switch {
	case errors.As(err, &rejected) && rejected.Reason == reader.Absent:
		return nil
	case rejected != nil && rejected.Reason == reader.Mismatched:
		f.logger.Info("stored state is replaced: reading the state from the server", "err", err)
		return nil
	case err != nil:
		f.logger.Warn("stored state cannot be used: reading the state from the server", "err", err)
		return nil
	}
	f.logger.Info("stored state loaded",
		"objects", len(s.Objects), "rv", s.Version, "age", Age(s.Time), "took",
		time.Since(began).Round(time.Millisecond))
	return s
}

// Age returns the time since t, rounded to the digits that matter.
func Age(t time.Time) time.Duration {
	d := time.Since(t)
	if d > time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// unreachable reports whether an error means that a server could not be reached, that the
// connection broke, or that the server failed or has too much to do.
func unreachable(err error) bool {
	switch reflector.ReasonOf(err) {
	case reflector.Refused, reflector.Busy, reflector.Internal:
		return true
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// turn waits for a turn and opens the files. The caller calls done.
func (s *Stored) turn(ctx context.Context, packer *objectpack.Packer) (done func(), m *storage.Mirror, err error) {
	done = func() {}
	if s.Turn != nil {
		if done, err = s.Turn(ctx); err != nil {
			return nil, nil, err
		}
	}
	if m, err = s.Open(ctx, packer); err != nil {
		done()
	}
	return done, m, err
}

// append stores a batch. The first one is the state of the first list, without changes, or
// continues the loaded state. Packed is [storage.Batch.Packed]. Open means that a list is being
// applied.
func (f *files) append(s *Snapshot, changes []Change, packed []*objectpack.Body, open bool) {
	if f.mirror != nil {
		f.mirror.Append(storage.Batch{
			State: s, Changes: changes, Packed: packed, Managers: f.writers.take(changes, s.Version()), Open: open,
			Vague: f.vague && !open,
		})
	}
}

// close closes the files. Batches that are queued are still written.
func (f *files) close() {
	if f.mirror != nil {
		f.mirror.Close()
	}
}

// uidPath is the UID of an object.
var uidPath = wire.NewPath("metadata.uid")

// newestOf returns the objects with the highest versions, for the reflector.
func newestOf(objects []*wire.Object) []reflector.StoredObject {
	var newest []*wire.Object
	for _, o := range objects {
		at, _ := slices.BinarySearchFunc(newest, o, func(a, b *wire.Object) int {
			return cmp.Compare(b.Version(), a.Version())
		})
		if at < reflector.ComparedObjects {
			newest = slices.Insert(newest, at, o)[:min(len(newest)+1, reflector.ComparedObjects)]
		}
	}
	stored := make([]reflector.StoredObject, len(newest))
	for i, o := range newest {
		uid, _ := o.Field(uidPath)
		stored[i] = reflector.StoredObject{Key: o.Key(), UID: uid, Version: o.Version()}
	}
	return stored
}

// writers remembers the field managers of new states from their arrival until they are
// stored, when they are cheap to read: later the states are packed, or a transformation has
// dropped their managed fields. It has an entry for each state that is queued.
type writers struct {
	mu sync.Mutex
	// stored is the version of the last stored state, 0 before the first one. States that
	// are not newer belong to a list, and have not changed.
	stored uint64
	// names are the field managers by version, and versions are its keys in the order of
	// their arrival.
	names    map[uint64]string
	versions []uint64
}

// noting returns a transformation that also remembers the field managers of its input.
func (w *writers) noting(transform Transform) Transform {
	return func(o *wire.Object) (*wire.Object, error) {
		switch {
		case transform != nil:
			w.note(o, func() string { return strings.Join(o.Managers(nil), ",") })
			return transform(o)
		case o.Encoding() == wire.Protobuf:
			w.note(o, o.LastManager)
		}
		// Objects in JSON keep their managed fields, which take long to read.
		return o, nil
	}
}

// note remembers the field managers of a state, if they are known.
func (w *writers) note(o *wire.Object, read func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := o.Version()
	if w.stored == 0 || version <= w.stored {
		return
	}
	if name := read(); name != "" {
		if w.names == nil {
			w.names = map[uint64]string{}
		}
		w.names[version] = name
		w.versions = append(w.versions, version)
	}
}

// take returns the field managers of changes that lead to a version, in their order, and
// forgets those of all states up to it. It returns nil if none is known.
func (w *writers) take(changes []Change, version uint64) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	if len(w.names) > 0 {
		all = make([]string, len(changes))
		for i := range changes {
			if o := changes[i].New; o != nil {
				all[i] = w.names[o.Version()]
			}
		}
	}
	n := 0
	for n < len(w.versions) && w.versions[n] <= version {
		delete(w.names, w.versions[n])
		n++
	}
	if w.versions = w.versions[n:]; len(w.versions) == 0 {
		w.names, w.versions = nil, nil
	}
	w.stored = version
	return all
}
