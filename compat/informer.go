// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// NewInformer returns a constructor of informers, with the parameters of
// [cache.NewSharedIndexInformer], for controller-runtime's cache.Options.NewInformer. A
// nil opts means the defaults.
func NewInformer(
	opts *Options,
) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	o := opts.withDefaults()
	// Informers of one constructor share the packing: a dictionary takes 300 KB for each
	// kind, and a program may have one informer per namespace.
	packing := watershed.NewPacking(nil)
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
		indexers cache.Indexers) cache.SharedIndexInformer {
		return newInformer(lw, example, resync, indexers, &o, packing)
	}
}

// informer adapts a Watershed informer to client-go's interface.
type informer struct {
	engine    *watershed.Informer[runtime.Object]
	prototype *prototype
	index     *indexer
	example   runtime.Object
	logger    *slog.Logger
	// logs is the logger in the options, which may be nil. contextual is used instead of
	// a nil one.
	logs       *slog.Logger
	contextual contextual
	// reflector is the argument for a WatchErrorHandler. It never runs.
	reflector *cache.Reflector
	// synced is the Synced channel of the only run.
	synced <-chan struct{}
	// resync is the default resync period of handlers.
	resync time.Duration
	// linger is how long the objects stay after the run.
	linger time.Duration

	// transform and watchError are set before the run, and read during it.
	transform  cache.TransformFunc
	watchError cache.WatchErrorHandlerWithContext

	// mu guards the fields below.
	mu               sync.Mutex
	started, stopped bool
	// shortest is the shortest resync period that a running informer allows.
	shortest time.Duration
	// version is the last version seen, set when the informer stops.
	version string
}

var _ cache.SharedIndexInformer = (*informer)(nil)

func newInformer(
	lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers, opts *Options,
	packing *watershed.Packing,
) *informer {
	p := newPrototype(example, opts.Scheme, opts.KeepKind)
	i := &informer{
		prototype: p, example: example, logs: opts.Logger, resync: resync, shortest: resync, linger: opts.Linger,
	}
	i.logger = slog.New(&i.contextual)
	if opts.Logger != nil {
		i.logger = opts.Logger
	}
	i.logger = i.logger.With("informer", p.String())
	s := &source{lister: cache.ToListerWatcherWithContext(lw), prototype: p, complain: i.complain}
	// controller-runtime edits the watches of metadata: each would be requested twice, first
	// with the tap.
	s.decoded.Store(p.goType == reflect.TypeFor[*metav1.PartialObjectMetadata]())
	streams := features.FeatureGates().Enabled(features.WatchListClient) &&
		!watchlist.DoesClientNotSupportWatchListSemantics(lw)
	c := watershed.Codec[runtime.Object]{Decode: p.decode, DecodeLike: p.decodeLike}
	i.engine = watershed.FromSourceWith(s, c, &watershed.SourceOptions[runtime.Object]{
		Memory:         opts.memory(),
		Packing:        packing,
		Values:         opts.Values,
		Drop:           opts.Drop,
		TransformBytes: i.transformBytes,
		Window:         opts.Window,
		Report:         opts.Report,
		Name:           p.String(),
		// Objects of a resource that is not served stay, as with client-go: a handler
		// that reacts to deletions by deleting other objects must not do so because an
		// API server is in trouble.
		Reflector: reflector.Options{ListOnly: !streams, Absence: -1},
		Logger:    i.logger,
		Hooks: engine.Hooks{
			Stored: i.stored(s, opts),
			Batch:  newMeter(opts.Name, opts.Metrics, p.resource(example)),
		},
	})
	i.index = newIndexer(i.engine, p, i.logger)
	i.index.add(indexers)
	i.synced = i.engine.Synced()
	i.reflector = cache.NewReflectorWithOptions(lw, example, i.index, cache.ReflectorOptions{Name: "watershed"})
	return i
}

// transformBytes applies the transform, if there is one, to an encoded object.
func (i *informer) transformBytes(o *wire.Object) (*wire.Object, error) {
	if i.transform == nil {
		return o, nil
	}
	value, err := i.prototype.decode(o)
	if err != nil {
		return nil, err
	}
	out, err := i.transform(value)
	if err != nil {
		return nil, err
	}
	if was := reflect.TypeOf(value); reflect.TypeOf(out) != was {
		return nil, fmt.Errorf("transform made a %T of a %v: it must return the type it is given", out, was)
	}
	return i.prototype.encodeLike(out.(runtime.Object), o)
}

// complain calls the WatchErrorHandler. If there is none, the reflector's log has the
// error.
func (i *informer) complain(ctx context.Context, err error) {
	if i.watchError != nil {
		i.watchError(ctx, i.reflector, err)
	}
}

// Run runs the informer until stop is closed.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext runs the informer until ctx ends, once. The objects stay readable for
// [Options.Linger] after it has returned.
func (i *informer) RunWithContext(ctx context.Context) {
	if !i.start() {
		i.logger.WarnContext(ctx, "the informer has been started before, and runs once only")
		return
	}
	i.contextual.use(klog.FromContext(ctx))
	i.index.start(ctx)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// The state must be saved for readers before the engine drops it.
	defer context.AfterFunc(ctx, func() {
		i.stop()
		cancel()
	})()
	if err := i.engine.Run(running); err != nil {
		i.logger.Error("the informer has stopped", "err", err)
	}
	i.stop()
	i.index.freeAfter(i.linger)
}

// start reports whether this is the first call.
func (i *informer) start() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.started
	i.started = true
	return first
}

func (i *informer) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return
	}
	i.stopped = true
	i.version = i.engine.Status().Reflector.Version
	i.index.freeze()
}

// IsStopped reports whether the informer was stopped.
func (i *informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}

// HasSynced reports whether the state has been complete once.
func (i *informer) HasSynced() bool { return isClosed(i.synced) }

// HasSyncedChecker returns a checker that is done when HasSynced is true.
func (i *informer) HasSyncedChecker() cache.DoneChecker {
	return done{name: fmt.Sprintf("SharedIndexInformer %T", i.example), when: i.synced}
}

// LastSyncResourceVersion returns the last version that the server sent.
func (i *informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return i.version
	}
	return i.engine.Status().Reflector.Version
}

// errStarted is returned by setters that are called after the informer has started.
var errStarted = errors.New("informer has already started")

// SetWatchErrorHandler sets the handler for failed lists and watches.
func (i *informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext sets the handler for failed lists and watches.
func (i *informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	return i.beforeStart(func() { i.watchError = handler })
}

// SetTransform sets a function that is applied to every state before it is stored. Each
// state is decoded and encoded for it.
func (i *informer) SetTransform(handler cache.TransformFunc) error {
	return i.beforeStart(func() { i.transform = handler })
}

// beforeStart calls a setter, or returns an error if the informer has started.
func (i *informer) beforeStart(set func()) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.started {
		return errStarted
	}
	set()
	return nil
}

// AddIndexers adds indexes.
func (i *informer) AddIndexers(indexers cache.Indexers) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return errors.New("indexer was not added because it has stopped already")
	}
	return i.index.AddIndexers(indexers)
}

// GetStore returns the same as GetIndexer.
func (i *informer) GetStore() cache.Store { return i.index }

// GetIndexer returns the informer's store.
func (i *informer) GetIndexer() cache.Indexer { return i.index }

// GetController returns a controller that reports the informer's state.
func (i *informer) GetController() cache.Controller { return controller{i} }

// controller is the controller of an informer. It cannot run the informer.
type controller struct{ informer *informer }

func (controller) Run(<-chan struct{})               {}
func (controller) RunWithContext(context.Context)    {}
func (c controller) HasSynced() bool                 { return c.informer.HasSynced() }
func (c controller) LastSyncResourceVersion() string { return c.informer.LastSyncResourceVersion() }
func (c controller) HasSyncedChecker() cache.DoneChecker {
	return c.informer.HasSyncedChecker()
}

// done is a channel with a name.
type done struct {
	name string
	when <-chan struct{}
}

// Name returns the name of the condition.
func (d done) Name() string { return d.name }

// Done returns a channel that is closed when the condition is met.
func (d done) Done() <-chan struct{} { return d.when }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
