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

var (
	// ErrRunning is returned by a Run while another has not returned.
	ErrRunning = errors.New("informer is running already")
	// ErrStopped is returned to who waits for a run that has ended.
	ErrStopped = errors.New("informer has stopped")
)

// engine mirrors one resource for informers of any type. It outlives its runs:
// each has a [life] of its own.
type engine struct {
	source reflector.Source[*wire.Object]
	opts   lifeOptions
	// cluster and resource are for people, and may be empty.
	cluster, resource string

	// current is the life that runs, or the one that will.
	current atomic.Pointer[life]

	// undecodable counts states of objects that could not be decoded.
	undecodable atomic.Uint64

	// mu guards what follows.
	mu      sync.Mutex
	running bool
	// parts are what every life is given: indexes and readers.
	parts map[part]struct{}
}

// part is something that joins every life of an engine. Join must not block; it
// is called with the engine's mu held, and may start goroutines with life.spawn.
type part interface {
	join(l *life)
}

func newEngine(source reflector.Source[*wire.Object], opts lifeOptions) *engine {
	e := &engine{source: source, opts: opts, parts: map[part]struct{}{}}
	e.current.Store(newLife(source, opts))
	return e
}

// engineOf mirrors what a query asks a cluster for. The log says which.
func engineOf(cluster *kube.Cluster, q kube.Query, opts lifeOptions) (*engine, error) {
	source, err := cluster.Source(q)
	if err != nil {
		return nil, err
	}
	opts.reflector.Logger = opts.reflector.Logger.With("cluster", cluster.Name(), "resource", q.String())
	e := newEngine(source, opts)
	e.cluster, e.resource = cluster.Name(), q.String()
	return e, nil
}

// add gives a part to the current life and to those after it.
func (e *engine) add(p part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parts[p] = struct{}{}
	p.join(e.current.Load())
}

// remove keeps a part from joining another life.
func (e *engine) remove(p part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.parts, p)
}

// run lives one life.
func (e *engine) run(ctx context.Context) error {
	e.mu.Lock()
	if e.running {
		e.mu.Unlock()
		return ErrRunning
	}
	e.running = true
	l := e.current.Load()
	e.mu.Unlock()

	e.opts.report.add(e)
	defer e.opts.report.remove(e)
	err := l.run(ctx, e.renew)

	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
	return err
}

// renew replaces the life that is ending by a new one, so that nothing holds on to
// the old one's objects but who is reading them.
func (e *engine) renew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.recent.Clear()
	next := newLife(e.source, e.opts)
	for p := range e.parts {
		p.join(next)
	}
	e.current.Store(next)
}
