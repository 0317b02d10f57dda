// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// FactoryOptions configures a [Factory] and all its informers. The zero value, and nil,
// are the defaults.
type FactoryOptions struct {
	// Namespace, LabelSelector and FieldSelector apply to informers that do not set
	// their own; [Everything] selects everything. Default: everything.
	Namespace, LabelSelector, FieldSelector string
	// Tweak can change the parameters of every list and watch. It is applied last.
	Tweak func(*metav1.ListOptions)
	// Drop lists metadata fields to discard from each object. Default: none.
	Drop wire.Fields
	// Memory selects how to store objects between reads. Default: Packed.
	Memory Memory
	// Values configures which decoded values of each informer are kept for the next reads.
	Values ValueOptions
	// Packing is shared by all packed informers that have it in their options. Default:
	// the factory's informers share one.
	Packing *Packing
	// Transform is called once for every state of every object before it is stored.
	Transform func(*wire.Object) (*wire.Object, error)
	// Disk and TransformName are those of [Options]. Informers of a user's own source
	// ([SharedOptions.NewSource]) are not stored.
	Disk          *disk.Directory
	TransformName string
	// Resync is how often handlers without a period of their own receive every object
	// again. CustomResync overrides it by resource. Default: never.
	Resync       time.Duration
	CustomResync map[schema.GroupVersionResource]time.Duration
	// StopIdle is how long a resource without leases is kept before it is stopped and
	// freed. 0 keeps it forever.
	StopIdle time.Duration
	// Window is [Options.Window]. Reflector configures how the server is listed and
	// watched.
	Window    int64
	Reflector reflector.Options
	// Report, if it is not nil, includes the informers while they run.
	Report *Report
	// Logger is used by all informers. Default: slog.Default().
	Logger *slog.Logger
}

// Factory has the informers of one cluster. All leases of the same resource and
// selection share one watch and one copy, whatever type they read. Leases of
// *metav1.PartialObjectMetadata and leases of a user's own source ([SharedOptions.NewSource]) have
// copies of their own. All methods are safe for concurrent use.
type Factory struct {
	cluster *kube.Cluster
	opts    FactoryOptions

	// mu guards what follows.
	mu      sync.Mutex
	running context.Context // nil while the factory does not run
	ending  bool            // no informer is started any more
	shared  map[shareKey]*shared
	// runs are the goroutines that Run waits for.
	runs sync.WaitGroup
}

// shareKey identifies the informers that share one engine.
type shareKey struct {
	resource                                schema.GroupVersionResource
	namespace, labelSelector, fieldSelector string
	metadataOnly                            bool
	// own means that the source is the user's: see SharedOptions.NewSource.
	own bool
}

// shared is an engine and the number of its leases. The factory's mu guards it.
type shared struct {
	engine *engine.Engine
	leases int
	// unused is closed when the last lease is released, if StopIdle is set. The next
	// lease replaces it.
	unused chan struct{}
	// stop ends the engine's run. It is nil while the engine does not run.
	stop context.CancelFunc
	// idle stops the engine when it has had no lease for StopIdle.
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

// Close ends the lease. It closes the handlers and the indexes that were added through the
// lease, as [Registration.Close] and [Index.Close] do. A second call does nothing.
func (l *Lease[T]) Close() { l.release() }

// Shared returns a lease on the factory's informer of a resource, which runs while the
// factory does. Opts select what to read; nil means the defaults. The first lease of a resource
// decides its encoding: if that lease was for a Go type, an *unstructured.Unstructured of a
// later lease has only the fields that the Go type has.
func Shared[T wire.Pointer[P], P any](f *Factory, opts *SharedOptions[T]) (*Lease[T], error) {
	o := opts.common().withDefaults()
	o.Tweak, o.Logger = f.opts.Tweak, f.opts.Logger
	for _, field := range []struct{ own, all *string }{
		{&o.Namespace, &f.opts.Namespace},
		{&o.LabelSelector, &f.opts.LabelSelector},
		{&o.FieldSelector, &f.opts.FieldSelector},
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
	var newSource sourceFunc
	if opts != nil && opts.NewSource != nil {
		newSource = checked(opts.NewSource)
	}
	s, err := f.lease(query, newSource)
	if err != nil {
		return nil, err
	}
	i := &Informer[T]{shared: true}
	i.init(s.engine, newCodec[T, P](s.engine.Values()), &o)
	return &Lease[T]{Informer: i, release: sync.OnceFunc(func() {
		s.engine.Discard(i)
		f.release(s)
	})}, nil
}

// checked returns a function that calls the user's newSource, and whose errors name the query.
func checked(newSource sourceFunc) sourceFunc {
	return func(cluster *kube.Cluster, q kube.Query) (reflector.Source[*wire.Object], error) {
		source, err := newSource(cluster, q)
		if err == nil && source == nil {
			err = errors.New("newSource returned nil")
		}
		if err != nil {
			return nil, fmt.Errorf("source of %s in %s: %w", q, cluster.Name(), err)
		}
		return source, nil
	}
}

// lease finds or creates the engine of a query, and starts it if the factory runs.
func (f *Factory) lease(q kube.Query, newSource sourceFunc) (*shared, error) {
	at := shareKey{q.Resource, q.Namespace, q.LabelSelector, q.FieldSelector, q.MetadataOnly, newSource != nil}
	if newSource == nil {
		newSource = clusterSource
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.shared[at]
	if !ok {
		var stored *engine.Stored
		if !at.own {
			var err error
			if stored, err = f.form().Stored(f.cluster, q); err != nil {
				return nil, err
			}
		}
		e, err := engineOf(f.cluster, newSource, q, engine.Options{
			Hooks:     engine.Hooks{Stored: stored},
			Transform: engine.Chain(f.opts.Drop, f.opts.Transform),
			Packed:    f.opts.Memory == Packed,
			Packing:   f.opts.Packing.of(),
			Values:    f.opts.Values.cache(),
			Running:   f.opts.Report.add,
			Window:    f.opts.Window,
			Reflector: f.opts.Reflector,
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

// form returns how objects are stored.
func (f *Factory) form() engine.Form {
	o := &f.opts
	return engine.Form{
		Directory: o.Disk.Storage(), Drop: o.Drop, Transformed: o.Transform != nil, Name: o.TransformName,
	}
}

// startLocked runs an engine, unless it runs, the factory does not, or it is idle.
func (f *Factory) startLocked(s *shared) {
	if f.running == nil || f.ending || s.stop != nil || s.leases == 0 && f.opts.StopIdle > 0 {
		return
	}
	ctx, stop := context.WithCancel(f.running)
	s.stop = stop
	f.runs.Go(func() {
		defer stop()
		if err := s.engine.Run(ctx); err != nil {
			f.opts.Logger.Error("informer ended", "err", err)
		}
	})
}

// release returns a lease.
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

// stopIdle stops and forgets an engine that still has no lease. The next lease creates
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

// Run runs all informers, including those that are leased later, until ctx ends. It
// returns when all of them have ended. It may be called again.
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

// WaitForSync waits until every informer that the factory has now has synced, except
// those that are stopped because they have no lease ([FactoryOptions.StopIdle]). It
// returns the error of ctx, or [ErrStopped].
func (f *Factory) WaitForSync(ctx context.Context) error {
	type wanted struct {
		resource schema.GroupResource
		life     *engine.Life
		unused   <-chan struct{}
	}
	f.mu.Lock()
	all := make([]wanted, 0, len(f.shared))
	for at, s := range f.shared {
		all = append(all, wanted{at.resource.GroupResource(), s.engine.Current(), s.unused})
	}
	f.mu.Unlock()
	for _, w := range all {
		if err := w.life.WaitUnless(ctx, w.unused); err != nil {
			return fmt.Errorf("wait for %s of %s: %w", w.resource, f.cluster.Name(), err)
		}
	}
	return nil
}

// Status returns the status of every informer, by resource. The order within a resource
// is not defined.
func (f *Factory) Status() map[schema.GroupVersionResource][]Status {
	f.mu.Lock()
	all := maps.Clone(f.shared)
	f.mu.Unlock()
	status := make(map[schema.GroupVersionResource][]Status, len(all))
	for at, s := range all {
		status[at.resource] = append(status[at.resource], statusOf(s.engine))
	}
	return status
}
