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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// NewInformer returns a constructor of informers, with the parameters of
// [cache.NewSharedIndexInformer]: it is what controller-runtime's
// cache.Options.NewInformer wants. A nil opts means the defaults.
func NewInformer(opts *Options) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	o := opts.withDefaults()
	// Informers of one constructor share it: a dictionary takes 300 KB for each kind, and there may be an informer of
	// each namespace.
	packing := watershed.NewPacking(nil)
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		return newInformer(lw, example, resync, indexers, &o, packing)
	}
}

// informer is an informer of ours that looks like one of client-go's.
type informer struct {
	engine    *watershed.Informer[runtime.Object]
	prototype *prototype
	index     *indexer
	example   runtime.Object
	logger    *slog.Logger
	// logs is the logger of the options, if they have one, and contextual where logs go otherwise.
	logs       *slog.Logger
	contextual contextual
	// reflector is what a WatchErrorHandler is given. It never runs.
	reflector *cache.Reflector
	// synced is that of the only run there will be.
	synced <-chan struct{}
	// resync is the period of handlers that do not say theirs.
	resync time.Duration

	// Both are set before the run, and read in it.
	transform  cache.TransformFunc
	watchError cache.WatchErrorHandlerWithContext

	// mu guards what follows.
	mu               sync.Mutex
	started, stopped bool
	// shortest is the shortest resync period that there can be.
	shortest time.Duration
	// version is the last one seen, once stopped.
	version string
}

var _ cache.SharedIndexInformer = (*informer)(nil)

func newInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers, opts *Options, packing *watershed.Packing) *informer {
	p := newPrototype(example, opts.Scheme, opts.KeepKind)
	i := &informer{prototype: p, example: example, logs: opts.Logger, resync: resync, shortest: resync}
	i.logger = slog.New(&i.contextual)
	if opts.Logger != nil {
		i.logger = opts.Logger
	}
	i.logger = i.logger.With("informer", p.String())
	s := &source{lister: cache.ToListerWatcherWithContext(lw), prototype: p, complain: i.complain}
	streams := features.FeatureGates().Enabled(features.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(lw)
	i.engine = watershed.FromSourceWith(s, watershed.Codec[runtime.Object]{Decode: p.decode, DecodeLike: p.decodeLike}, &watershed.Options[runtime.Object]{
		Memory:         opts.memory(),
		Packing:        packing,
		Drop:           opts.Drop,
		TransformBytes: i.transformBytes,
		Window:         opts.Window,
		Report:         opts.Report,
		Name:           p.String(),
		// Objects of a resource that is not served stay, as with client-go: who reacts to deletions by deleting
		// something else must not do so because an API server is in trouble.
		Reflector: reflector.Options{ListOnly: !streams, Absence: -1},
		Logger:    i.logger,
	})
	i.index = newIndexer(i.engine, p)
	i.index.add(indexers)
	i.synced = i.engine.Synced()
	i.reflector = cache.NewReflectorWithOptions(lw, example, i.index, cache.ReflectorOptions{Name: "watershed"})
	return i
}

// transformBytes applies the transform to the bytes of an object, if there is one.
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

// complain tells the WatchErrorHandler. Without one there is the log of the
// reflector.
func (i *informer) complain(ctx context.Context, err error) {
	if i.watchError != nil {
		i.watchError(ctx, i.reflector, err)
	}
}

// Run runs the informer until stop is closed.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext runs the informer until ctx ends, once.
func (i *informer) RunWithContext(ctx context.Context) {
	if !i.start() {
		i.logger.WarnContext(ctx, "the informer has been started before, and runs once only")
		return
	}
	i.contextual.use(klog.FromContext(ctx))
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// What there is must be kept for readers before the engine lets go of it.
	defer context.AfterFunc(ctx, func() {
		i.stop()
		cancel()
	})()
	if err := i.engine.Run(running); err != nil {
		i.logger.Error("the informer has stopped", "err", err)
	}
	i.stop()
}

// start reports whether this is the first time.
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

// HasSynced reports whether the state has been complete.
func (i *informer) HasSynced() bool { return isClosed(i.synced) }

// HasSyncedChecker is done when HasSynced is true.
func (i *informer) HasSyncedChecker() cache.DoneChecker {
	return done{name: fmt.Sprintf("SharedIndexInformer %T", i.example), when: i.synced}
}

// LastSyncResourceVersion is the last version that the server sent.
func (i *informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return i.version
	}
	return i.engine.Status().Reflector.Version
}

// errStarted is what cannot be set any more says.
var errStarted = errors.New("informer has already started")

// SetWatchErrorHandler sets who is told of lists and watches that fail.
func (i *informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext sets who is told of lists and watches that fail.
func (i *informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.started {
		return errStarted
	}
	i.watchError = handler
	return nil
}

// SetTransform sets what is applied to every state before it is kept. It costs a
// decoding and an encoding each.
func (i *informer) SetTransform(handler cache.TransformFunc) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.started {
		return errStarted
	}
	i.transform = handler
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

// GetStore is GetIndexer.
func (i *informer) GetStore() cache.Store { return i.index }

// GetIndexer is what the informer has.
func (i *informer) GetIndexer() cache.Indexer { return i.index }

// GetController is what can be asked of the informer as of a controller.
func (i *informer) GetController() cache.Controller { return controller{i} }

// controller is an informer that cannot be run through it.
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

// Name says what is waited for.
func (d done) Name() string { return d.name }

// Done is closed when it is over.
func (d done) Done() <-chan struct{} { return d.when }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
