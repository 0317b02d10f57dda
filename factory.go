// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// FactoryOptions tune a [Factory]. The zero value, and nil, are the defaults. They
// hold for all its informers.
type FactoryOptions struct {
	// Namespace, LabelSelector and FieldSelector are for informers that say
	// nothing else; [All] is everything. Default: everything.
	Namespace, LabelSelector, FieldSelector string
	// Tweak has the last word on the parameters of every list and watch.
	Tweak func(*metav1.ListOptions)
	// Drop is what of each object's metadata is not kept. Default: nothing.
	Drop wire.Fields
	// Memory is how objects are kept that nobody looks at. Default: Fast.
	Memory Memory
	// Packing is shared by all packed informers that it is given to. Default: those
	// of the factory share one.
	Packing *Packing
	// Transform is called once for every state of every object before it is
	// kept.
	Transform func(*wire.Object) (*wire.Object, error)
	// Resync is how often handlers that say nothing else are given every object
	// again, and CustomResync the same by resource. Default: never.
	Resync       time.Duration
	CustomResync map[schema.GroupVersionResource]time.Duration
	// StopIdle is how long a resource that nobody has a lease on is kept before
	// it is stopped and freed. 0 is for ever.
	StopIdle time.Duration
	// Window is that of [Options], Reflector tunes how the server is asked.
	Window    int64
	Reflector reflector.Options
	// Report, if there is one, knows the informers while they run.
	Report *Report
	// Logger is for all informers. Default: slog.Default().
	Logger *slog.Logger
}

// Factory has informers of one cluster, at most one for each resource and
// selection, whoever asks for it and in whatever type: they share one watch and
// one copy. All methods are safe for concurrent use.
type Factory struct {
	cluster *kube.Cluster
	opts    FactoryOptions

	// mu guards what follows.
	mu      sync.Mutex
	running context.Context // nil while it does not run
	ending  bool            // nothing is started any more
	shared  map[shareKey]*shared
	// runs are the goroutines that Run waits for.
	runs sync.WaitGroup
}

// shareKey identifies the informers that share one engine.
type shareKey struct {
	resource                                schema.GroupVersionResource
	namespace, labelSelector, fieldSelector string
	metadataOnly                            bool
}

// shared is an engine and its leases. The factory's mu guards it.
type shared struct {
	engine *engine
	leases int
	// unused is closed while there are no leases and the engine is stopped for that.
	unused chan struct{}
	// stop ends the engine's run; nil while it does not run.
	stop context.CancelFunc
	// idle stops it for want of leases.
	idle *time.Timer
}

// NewFactory returns a factory without informers. A nil opts means the defaults.
func NewFactory(cluster *kube.Cluster, opts *FactoryOptions) *Factory {
	f := &Factory{cluster: cluster, shared: map[shareKey]*shared{}}
	if opts != nil {
		f.opts = *opts
	}
	if f.opts.Packing == nil {
		f.opts.Packing = NewPacking(nil)
	}
	if f.opts.Logger == nil {
		f.opts.Logger = slog.Default()
	}
	if f.opts.Reflector.Logger == nil {
		f.opts.Reflector.Logger = f.opts.Logger
	}
	return f
}

// Lease is a share in an informer of a factory.
type Lease[T any] struct {
	*Informer[T]
	release func()
}

// Release gives the share back. It closes the handlers and removes the indexes that were
// added through the lease, as [Registration.Close] and [Index.Remove] do. Releasing twice
// does nothing.
func (l *Lease[T]) Release() { l.release() }

// Shared returns a share in the factory's informer of a resource, which runs while
// the factory does. Opts say what to read; Tweak, Drop, Transform, Memory, Packing, Tap,
// Report, Window, Reflector and Logger are the factory's, and Shared refuses them. The first lease of a resource decides how it comes: if
// that was of a Go type, an *unstructured.Unstructured of a later one has the
// fields that the Go type has.
func Shared[T wire.Pointer[P], P any](f *Factory, opts *Options[T]) (*Lease[T], error) {
	if name := opts.ofFactory(); name != "" {
		return nil, fmt.Errorf("shared informer of %T: %s is an option of the factory", *new(T), name)
	}
	o := opts.withDefaults()
	o.Tweak, o.Logger = f.opts.Tweak, f.opts.Logger
	for _, field := range []struct{ own, all *string }{
		{&o.Namespace, &f.opts.Namespace}, {&o.LabelSelector, &f.opts.LabelSelector}, {&o.FieldSelector, &f.opts.FieldSelector},
	} {
		if *field.own == "" {
			*field.own = *field.all
		}
	}
	query, err := queryOf(&o)
	if err != nil {
		return nil, err
	}
	if o.Resync == 0 {
		o.Resync = f.opts.Resync
		if custom, ok := f.opts.CustomResync[query.Resource]; ok {
			o.Resync = custom
		}
	}
	s, err := f.lease(query)
	if err != nil {
		return nil, err
	}
	i := &Informer[T]{shared: true}
	i.init(s.engine, newCodec[T, P](s.engine.opts.recent), &o)
	return &Lease[T]{Informer: i, release: sync.OnceFunc(func() {
		s.engine.discard(i)
		f.release(s)
	})}, nil
}

// lease finds or makes what the query asks for, and starts it if it is time.
func (f *Factory) lease(q kube.Query) (*shared, error) {
	at := shareKey{q.Resource, q.Namespace, q.LabelSelector, q.FieldSelector, q.MetadataOnly}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.shared[at]
	if !ok {
		e, err := engineOf(f.cluster, q, lifeOptions{
			transform: chain(f.opts.Drop, f.opts.Transform),
			memory:    f.opts.Memory,
			packing:   f.opts.Packing,
			recent:    f.opts.Memory.recent(),
			report:    f.opts.Report,
			window:    f.opts.Window,
			reflector: f.opts.Reflector,
		})
		if err != nil {
			return nil, err
		}
		s = &shared{engine: e}
		f.shared[at] = s
	}
	if s.leases == 0 {
		s.unused = make(chan struct{})
	}
	s.leases++
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	f.startLocked(s)
	return s, nil
}

// startLocked runs an engine, unless it runs or the factory does not.
func (f *Factory) startLocked(s *shared) {
	if f.running == nil || f.ending || s.stop != nil || s.leases == 0 && f.opts.StopIdle > 0 {
		return
	}
	ctx, stop := context.WithCancel(f.running)
	s.stop = stop
	f.runs.Go(func() {
		defer stop()
		if err := s.engine.run(ctx); err != nil {
			f.opts.Logger.Error("informer ended", "err", err)
		}
	})
}

// release takes a lease back.
func (f *Factory) release(s *shared) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.leases--
	if s.leases > 0 || f.opts.StopIdle == 0 {
		return
	}
	close(s.unused)
	s.idle = time.AfterFunc(f.opts.StopIdle, func() { f.stopIdle(s) })
}

// stopIdle stops and forgets what nobody has taken up again: the next lease is of
// another.
func (f *Factory) stopIdle(s *shared) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.leases > 0 {
		return
	}
	if s.stop != nil {
		s.stop()
	}
	maps.DeleteFunc(f.shared, func(_ shareKey, other *shared) bool { return other == s })
}

// Run runs the informers there are, and those that are asked for later, until ctx
// ends, and returns when all of them have. It may be called again.
func (f *Factory) Run(ctx context.Context) error {
	f.mu.Lock()
	if f.running != nil {
		f.mu.Unlock()
		return fmt.Errorf("factory of %s: %w", f.cluster.Name(), ErrRunning)
	}
	f.running = ctx
	for _, s := range f.shared {
		f.startLocked(s)
	}
	f.mu.Unlock()

	<-ctx.Done()
	f.mu.Lock()
	f.ending = true
	f.mu.Unlock()
	f.runs.Wait()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.running, f.ending = nil, false
	for _, s := range f.shared {
		s.stop = nil
	}
	return nil
}

// WaitForSync waits until every informer there is now has synced, except those that have
// no lease and are stopped for that ([FactoryOptions.StopIdle]). The error is that of
// ctx, or [ErrStopped].
func (f *Factory) WaitForSync(ctx context.Context) error {
	type wanted struct {
		resource schema.GroupResource
		life     *life
		unused   <-chan struct{}
	}
	f.mu.Lock()
	all := make([]wanted, 0, len(f.shared))
	for at, s := range f.shared {
		all = append(all, wanted{at.resource.GroupResource(), s.engine.current.Load(), s.unused})
	}
	f.mu.Unlock()
	for _, w := range all {
		if err := w.life.waitUnless(ctx, w.unused); err != nil {
			return fmt.Errorf("wait for %s of %s: %w", w.resource, f.cluster.Name(), err)
		}
	}
	return nil
}

// Status is that of every informer, by resource; of several with different
// selections in no order.
func (f *Factory) Status() map[schema.GroupVersionResource][]Status {
	f.mu.Lock()
	all := maps.Clone(f.shared)
	f.mu.Unlock()
	status := make(map[schema.GroupVersionResource][]Status, len(all))
	for at, s := range all {
		status[at.resource] = append(status[at.resource], s.engine.status())
	}
	return status
}
