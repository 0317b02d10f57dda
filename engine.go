// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// ErrRunning is returned by Run if an earlier call has not returned.
var ErrRunning = errors.New("informer is running already")

// engine mirrors one resource for informers of any type. It outlives its runs: each has
// its own [life].
type engine struct {
	source reflector.Source[*wire.Object]
	opts   lifeOptions
	// shared means that other informers use the same counters.
	shared bool
	// cluster and resource are for display, and may be empty.
	cluster, resource string

	// current is the running life, or the next one if none runs.
	current atomic.Pointer[life]

	// undecodable counts states of objects that could not be decoded.
	undecodable atomic.Uint64

	// mu guards the fields below.
	mu      sync.Mutex
	running bool
	// parts has the indexes and readers that join every life, with the informer that
	// each was added through.
	parts map[part]any
}

// part joins every life of an engine. Its join may start goroutines with life.spawn.
// The engine holds mu during join, which must not block then, unless the part was added
// with build.
type part interface {
	join(l *life)
	// discard ends the part after it was removed from the engine.
	discard()
}

func newEngine(source reflector.Source[*wire.Object], opts lifeOptions) *engine {
	shared := opts.counters != nil
	if !shared {
		opts.counters = NewCounters()
	}
	if opts.reflector.Counters == nil {
		opts.reflector.Counters = &opts.counters.reflector
	}
	e := &engine{source: source, opts: opts, shared: shared, parts: map[part]any{}}
	e.current.Store(newLife(source, opts))
	return e
}

// sourceFunc returns the source of a query of a cluster.
type sourceFunc func(*kube.Cluster, kube.Query) (reflector.Source[*wire.Object], error)

// clusterSource returns the cluster's own source.
func clusterSource(cluster *kube.Cluster, q kube.Query) (reflector.Source[*wire.Object], error) {
	source, err := cluster.Source(q)
	if err != nil {
		return nil, err
	}
	return source, nil
}

// engineOf returns an engine for a query of a cluster. Its log lines identify both.
func engineOf(cluster *kube.Cluster, newSource sourceFunc, q kube.Query, opts lifeOptions) (*engine, error) {
	source, err := newSource(cluster, q)
	if err != nil {
		return nil, err
	}
	opts.reflector.Logger = opts.reflector.Logger.With("cluster", cluster.Name(), "resource", q.String())
	e := newEngine(source, opts)
	e.cluster, e.resource = cluster.Name(), q.String()
	return e, nil
}

// add adds a part to the current life and to all later ones.
func (e *engine) add(p part, owner any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parts[p] = owner
	p.join(e.current.Load())
}

// build is add for a part that may take long to join a life that has objects. The
// engine's mu is not held while it joins.
func (e *engine) build(p part, owner any) {
	for {
		l := e.current.Load()
		p.join(l)
		if e.built(p, owner, l) {
			return
		}
		// The run has ended in the meantime, and the part was built in its life only.
	}
}

// built adds a part that has joined a life. It returns false if that life is not the
// current one.
func (e *engine) built(p part, owner any, l *life) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current.Load() != l {
		return false
	}
	e.parts[p] = owner
	return true
}

// discard removes and ends the parts that were added through an informer.
func (e *engine) discard(owner any) {
	e.mu.Lock()
	var own []part
	for p, o := range e.parts {
		if o == owner {
			own = append(own, p)
			delete(e.parts, p)
		}
	}
	e.mu.Unlock()
	for _, p := range own {
		p.discard()
	}
}

// remove keeps a part from joining another life.
func (e *engine) remove(p part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.parts, p)
}

// run runs one life.
func (e *engine) run(ctx context.Context) error {
	l, withdraw, err := e.begin()
	if err != nil {
		return err
	}
	err = l.run(ctx, e.renew)
	e.end(withdraw)
	return err
}

// begin begins a run of the current life. The caller passes withdraw, which removes the
// engine from its report, to end.
func (e *engine) begin() (l *life, withdraw func(), err error) {
	e.mu.Lock()
	if e.running {
		e.mu.Unlock()
		return nil, nil, ErrRunning
	}
	e.running = true
	e.opts.recent.Resume()
	l = e.current.Load()
	e.mu.Unlock()
	return l, e.opts.report.add(e), nil
}

// end ends a run.
func (e *engine) end(withdraw func()) {
	withdraw()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// renew replaces the ending life by a new one, so that only readers still hold the old
// one's objects. Until the next run, readers of old snapshots do not fill recent again.
func (e *engine) renew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.recent.Suspend()
	next := newLife(e.source, e.opts)
	for p := range e.parts {
		p.join(next)
	}
	e.current.Store(next)
}

// stats returns the memory use of the current life, in about 200 ns.
func (e *engine) stats() Stats {
	l := e.current.Load()
	snap := l.store.Snapshot()
	s := Stats{
		Cluster: e.cluster, Resource: e.resource, Objects: snap.Len(), Packed: int(l.held.packed.Load()),
		ObjectBytes: l.held.bytes.Load(), LogBytes: l.log.Stats().Bytes,
	}
	keys, indexes := snap.Size()
	s.KeyBytes, s.IndexBytes = int64(keys), int64(indexes)
	if l.packing != nil {
		s.DictionaryBytes = l.packing.packer.DictionaryBytes() / max(l.packing.shared.users.Load(), 1)
	}
	_, decoded := e.opts.recent.Size()
	s.DecodedBytes = int64(decoded)
	return s
}
