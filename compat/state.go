// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/wire"
)

type (
	snapshot = watershed.Snapshot[runtime.Object]
	change   = delta.Delta[*wire.Object]
)

var (
	// errStopped is returned by writes after the informer has stopped, which no handler
	// would see.
	errStopped = errors.New("informer has stopped")
	// errFreed is returned by reads of a stopped informer whose objects were freed. "Not
	// found" would be wrong: the objects may exist.
	errFreed = errors.New("informer has stopped and its objects were freed: see compat.Options.Linger")
)

// state is the content of an informer's store. While the informer runs, that is the state
// of the engine, which the engine drops at the end of the run. Afterwards it is the last
// state, until that is freed.
type state struct {
	engine *watershed.Informer[runtime.Object]
	logger *slog.Logger
	// none is a state without objects.
	none snapshot
	// last is what reads return after the informer has stopped, nil before.
	last atomic.Pointer[content]
	// warned is set when a read without an error result was logged.
	warned atomic.Bool

	// mu keeps writes from reaching the engine after the state was frozen. It guards run,
	// the context of the informer's run, nil before it.
	mu  sync.Mutex
	run context.Context
}

// content is a state to read.
type content struct {
	snapshot
	// version is the newest version of the state. It stays when the objects are freed.
	version uint64
	// freed means that the objects were freed without a request by the program.
	freed bool
}

func (s *state) init(engine *watershed.Informer[runtime.Object], logger *slog.Logger) {
	s.engine, s.logger, s.none = engine, logger, engine.Snapshot()
}

// current returns the state to read.
func (s *state) current() content {
	// The engine's state comes first: if the state is frozen only after that, the engine
	// still had its objects.
	now := s.engine.Snapshot()
	if last := s.last.Load(); last != nil {
		return *last
	}
	return content{snapshot: now, version: now.Version()}
}

// read returns the state to read, or errFreed.
func (s *state) read() (snapshot, error) {
	now := s.current()
	if now.freed {
		return now.snapshot, errFreed
	}
	return now.snapshot, nil
}

// now is read for methods without an error result. If the objects were freed, it logs that
// once, because the caller cannot distinguish that from an empty cluster.
func (s *state) now() snapshot {
	now, err := s.read()
	if err != nil && s.warned.CompareAndSwap(false, true) {
		s.logger.Warn("an informer is listed after its objects were freed: the list is empty", "err", err)
	}
	return now
}

// write applies changes, or returns errStopped.
func (s *state) write(changes ...change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil && s.run.Err() != nil {
		s.freezeLocked()
	}
	if s.last.Load() != nil {
		return errStopped
	}
	s.engine.Write(changes...)
	return nil
}

// start records that the informer runs until ctx ends.
func (s *state) start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = ctx
}

// freeze saves the current state for reads after the informer has stopped. It must be
// called before the engine stops.
func (s *state) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freezeLocked()
}

func (s *state) freezeLocked() {
	if s.last.Load() == nil {
		now := s.current()
		s.last.Store(&now)
	}
}

// clear removes all objects from a frozen state.
func (s *state) clear(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.Store(&content{snapshot: s.none, version: version})
}

// free frees the objects of a frozen state, unless it was cleared.
func (s *state) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.last.Load(); last.snapshot != s.none {
		s.last.Store(&content{snapshot: s.none, version: last.version, freed: true})
	}
}

// freeAfter calls free after a delay. Until then it does not keep the objects of an
// informer that the program has dropped.
func (s *state) freeAfter(delay time.Duration) {
	if delay <= 0 {
		s.free()
		return
	}
	held := weak.Make(s)
	time.AfterFunc(delay, func() {
		if s := held.Value(); s != nil {
			s.free()
		}
	})
}
