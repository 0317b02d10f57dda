// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// Options configures an [Engine].
type Options struct {
	// Cluster and Resource identify the engine in reports. They may be empty.
	Cluster, Resource string
	// Transform returns the state to store for a received state: see [Chain]. It may be nil. Drops
	// means that it drops metadata and does nothing else.
	Transform Transform
	Drops     bool
	// Packed means that objects are packed. Packing is shared with other engines; if it is nil,
	// each life has its own.
	Packed  bool
	Packing *Packing
	// Tap, if it is not nil, is called in order with every batch of changes and the state
	// after it. The first call is made without changes, when the life has synced or has loaded
	// its stored state. Whole is false while a list is being applied.
	Tap func(s *Snapshot, changes []Change, whole bool)
	// Values has the decoded values of readers.
	Values *valuecache.Cache
	// Running, if it is not nil, is called when a run begins, and returns the function to call
	// when the run ends.
	Running func(*Engine) (ended func())
	// Window limits, in bytes, the states that are kept for slow readers. Default 64 MiB.
	Window int64
	// Reflector configures how the source is listed and watched.
	Reflector reflector.Options
	Hooks
}

// Hooks are the options of an [Engine] that only packages of this module set. They set them
// through the options of an informer.
type Hooks struct {
	// Stored has the files. It is nil if objects are not stored.
	Stored *Stored
	// Facets returns the plan for the facets of the objects, when a run begins, which waits for it. If
	// it is nil or returns nil, objects have no facets.
	Facets func(ctx context.Context) *facets.Plan
	// Counters counts the work, together with that of other engines. If it is nil, the engine
	// has its own.
	Counters *Counters
	// Batch, if it is not nil, is called after each batch of changes has been stored. The engine
	// waits for it, so it must be quick and must not call the informer.
	Batch func(BatchStats)
}

// Engine mirrors one resource for informers of any type. It outlives its runs: each has
// its own [Life].
type Engine struct {
	source reflector.Source[*wire.Object]
	opts   Options
	// shared means that other engines use the same counters.
	shared bool

	// current is the running life, or the next one if none runs.
	current atomic.Pointer[Life]

	// undecodable counts states of objects that could not be decoded.
	undecodable atomic.Uint64

	// mu guards the fields below.
	mu      sync.Mutex
	running bool
	// parts has the indexes and readers that join every life, with the informer that
	// each was added through.
	parts map[Part]any
}

// Part joins every life of an engine. Its Join may start goroutines with [Life.Spawn].
// The engine's lock is held during Join, which must not block then, unless the part was
// added with [Engine.Build].
type Part interface {
	Join(l *Life)
	// Discard ends the part after it was removed from the engine.
	Discard()
}

// New returns an engine that reads a source. It does not read before [Engine.Run].
func New(source reflector.Source[*wire.Object], opts Options) *Engine {
	shared := opts.Counters != nil
	if !shared {
		opts.Counters = NewCounters()
	}
	if opts.Reflector.Counters == nil {
		opts.Reflector.Counters = &opts.Counters.reflector
	}
	e := &Engine{source: source, opts: opts, shared: shared, parts: map[Part]any{}}
	e.current.Store(newLife(source, opts))
	return e
}

// Cluster returns [Options.Cluster].
func (e *Engine) Cluster() string { return e.opts.Cluster }

// Resource returns [Options.Resource].
func (e *Engine) Resource() string { return e.opts.Resource }

// Values returns [Options.Values].
func (e *Engine) Values() *valuecache.Cache { return e.opts.Values }

// Current returns the running life, or the next one if none runs.
func (e *Engine) Current() *Life { return e.current.Load() }

// Undecodable returns the counter of states that could not be decoded, which readers add to.
func (e *Engine) Undecodable() *atomic.Uint64 { return &e.undecodable }

// Counts returns the work across all runs. It is zero if other engines use the same counters.
func (e *Engine) Counts() Counts {
	if e.shared {
		return Counts{}
	}
	return e.opts.Counters.Counts()
}

// Inspect calls read with the current life and all parts, none of which change meanwhile.
func (e *Engine) Inspect(read func(l *Life, parts iter.Seq[Part])) {
	e.mu.Lock()
	defer e.mu.Unlock()
	read(e.current.Load(), maps.Keys(e.parts))
}

// Transform returns an object of the server as the engine stores it.
func (e *Engine) Transform(o *wire.Object) (*wire.Object, error) {
	transform := guarded(e.opts.Transform)
	if transform == nil {
		return o, nil
	}
	return transform(o)
}

// Add adds a part to the current life and to all later ones. The owner is the informer that
// the part is added through.
func (e *Engine) Add(p Part, owner any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parts[p] = owner
	p.Join(e.current.Load())
}

// Build is Add for a part that may take long to join a life that has objects. The
// engine's mu is not held while it joins.
func (e *Engine) Build(p Part, owner any) {
	for {
		l := e.current.Load()
		p.Join(l)
		if e.built(p, owner, l) {
			return
		}
		// The run has ended in the meantime, and the part was built in its life only.
	}
}

// built adds a part that has joined a life. It returns false if that life is not the
// current one.
func (e *Engine) built(p Part, owner any, l *Life) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current.Load() != l {
		return false
	}
	e.parts[p] = owner
	return true
}

// Discard removes and ends the parts that were added through an informer.
func (e *Engine) Discard(owner any) {
	e.mu.Lock()
	var own []Part
	for p, o := range e.parts {
		if o == owner {
			own = append(own, p)
			delete(e.parts, p)
		}
	}
	e.mu.Unlock()
	for _, p := range own {
		p.Discard()
	}
}

// Remove keeps a part from joining another life.
func (e *Engine) Remove(p Part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.parts, p)
}

// Run runs one life. It returns [reflector.ErrRunning] if an earlier call has not returned.
func (e *Engine) Run(ctx context.Context) error {
	l, ended, err := e.begin()
	if err != nil {
		return err
	}
	err = l.run(ctx, e.renew)
	e.end(ended)
	return err
}

// begin begins a run of the current life. The caller passes ended, the result of
// [Options.Running], to end.
func (e *Engine) begin() (l *Life, ended func(), err error) {
	e.mu.Lock()
	if e.running {
		e.mu.Unlock()
		return nil, nil, fmt.Errorf("informer: %w", reflector.ErrRunning)
	}
	e.running = true
	e.opts.Values.Resume()
	l = e.current.Load()
	e.mu.Unlock()
	if e.opts.Running == nil {
		return l, func() {}, nil
	}
	return l, e.opts.Running(e), nil
}

// end ends a run.
func (e *Engine) end(ended func()) {
	ended()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// renew replaces the ending life by a new one, so that only readers still hold the old
// one's objects. Until the next run, readers of old snapshots do not keep values again.
func (e *Engine) renew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.Values.Suspend()
	next := newLife(e.source, e.opts)
	for p := range e.parts {
		p.Join(next)
	}
	e.current.Store(next)
}
