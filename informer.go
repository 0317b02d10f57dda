// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var (
	// ErrNoResource is returned for a type whose resource is not known, if
	// [Options.Resource] is not set.
	ErrNoResource = errors.New("resource is not known: set Options.Resource")
	// ErrRunning is returned by Run if an earlier call has not returned. It is
	// [reflector.ErrRunning].
	ErrRunning = reflector.ErrRunning
	// ErrStopped is returned to callers that wait for a run that has ended.
	ErrStopped = engine.ErrStopped
)

// Informer keeps a copy of one resource and returns its objects as values of type T: a
// Go type such as *corev1.Pod, *unstructured.Unstructured,
// *metav1.PartialObjectMetadata, or *[wire.Object]. All methods are safe for concurrent
// use.
type Informer[T any] struct {
	decoder decoder[T]
	engine  *engine.Engine
	resync  time.Duration
	// shared means that a factory runs the informer.
	shared bool
	// sharing lets the handlers of the current life share decoded changes.
	sharing currentSharing[T]
}

// New returns an informer of a cluster's resource. It does not connect to the server
// before [Informer.Run]. A nil opts means the defaults.
func New[T wire.Pointer[P], P any](cluster *kube.Cluster, opts *Options[T]) (*Informer[T], error) {
	o := opts.withDefaults()
	query, err := queryOf[T](&o)
	if err != nil {
		return nil, err
	}
	c := newCodec[T, P](o.Values.cache())
	eo := o.engine(c)
	transformed := o.Transform != nil || o.TransformBytes != nil
	form := engine.Form{Directory: o.Disk.Storage(), Drop: o.Drop, Transformed: transformed, Name: o.TransformName}
	if eo.Stored, err = form.Stored(cluster, query); err != nil {
		return nil, err
	}
	e, err := engineOf(cluster, clusterSource, query, eo)
	if err != nil {
		return nil, err
	}
	i := &Informer[T]{}
	i.init(e, c, &o)
	return i, nil
}

// FromSource returns an informer of anything that can be listed and watched. A nil opts means
// the defaults.
func FromSource[T wire.Pointer[P], P any](
	source reflector.Source[*wire.Object], opts *SourceOptions[T],
) *Informer[T] {
	return fromSource(source, newCodec[T, P], opts)
}

// FromSourceWith is FromSource for values of any type, which a codec decodes.
func FromSourceWith[T any](
	source reflector.Source[*wire.Object], c Codec[T], opts *SourceOptions[T],
) *Informer[T] {
	return fromSource(source, c.codec, opts)
}

func fromSource[T any](
	source reflector.Source[*wire.Object], newCodec func(*valuecache.Cache) codec[T], opts *SourceOptions[T],
) *Informer[T] {
	if opts == nil {
		opts = new(SourceOptions[T])
	}
	i := &Informer[T]{}
	o := opts.common().withDefaults()
	c := newCodec(o.Values.cache())
	e := o.engine(c)
	e.Cluster, e.Resource, e.Tap, e.Hooks = opts.Cluster, opts.Name, opts.tap(&i.decoder), opts.Hooks
	if e.Cluster != "" || e.Resource != "" {
		e.Reflector.Logger = e.Reflector.Logger.With("cluster", e.Cluster, "resource", e.Resource)
	}
	i.init(engine.New(source, e), c, &o)
	return i
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
func engineOf(
	cluster *kube.Cluster, newSource sourceFunc, q kube.Query, opts engine.Options,
) (*engine.Engine, error) {
	source, err := newSource(cluster, q)
	if err != nil {
		return nil, err
	}
	opts.Cluster, opts.Resource = cluster.Name(), q.String()
	opts.Reflector.Logger = opts.Reflector.Logger.With("cluster", opts.Cluster, "resource", opts.Resource)
	return engine.New(source, opts), nil
}

func (i *Informer[T]) init(e *engine.Engine, c codec[T], o *Options[T]) {
	i.engine, i.resync = e, o.Resync
	i.decoder.codec, i.decoder.logger, i.decoder.failures = c, o.Logger, e.Undecodable()
	if o.Mutated != nil && !c.raw {
		d := newDetector(c.fresh, o.Mutated)
		i.decoder.codec.decode, i.decoder.codec.read = d.watch(c.decode), d.watch(c.read)
		// States share no parts of their values, so that a mutation is found in one
		// state only.
		i.decoder.codec.like = func(o, _ *wire.Object, _ T) (T, error) { return i.decoder.codec.decode(o) }
		i.decoder.codec.held = func(*wire.Object) (T, bool) { return *new(T), false }
		e.Add(d, i)
	}
}

// self makes informers and their leases [Indexable].
func (i *Informer[T]) self() *Informer[T] { return i }

// queryOf returns the query that the options select.
func queryOf[T any](o *Options[T]) (kube.Query, error) {
	resource := o.Resource
	if resource == (schema.GroupVersionResource{}) {
		var known bool
		if resource, _, known = kube.ResourceOf(*new(T)); !known {
			return kube.Query{}, fmt.Errorf("informer of %T: %w", *new(T), ErrNoResource)
		}
	}
	metadataOnly, json := wants[T]()
	return kube.Query{
		Resource:      resource,
		Namespace:     unlessAll(o.Namespace),
		LabelSelector: unlessAll(o.LabelSelector),
		FieldSelector: unlessAll(o.FieldSelector),
		Tweak:         o.Tweak,
		MetadataOnly:  metadataOnly,
		JSON:          json,
	}, nil
}

func unlessAll(selection string) string {
	if selection == Everything {
		return ""
	}
	return selection
}

// Run keeps the copy up to date until ctx ends, and returns when everything that it
// started has returned, handlers included. The copy is then empty. Run may be called
// again: handlers and indexes stay, and handlers receive the whole state again.
func (i *Informer[T]) Run(ctx context.Context) error {
	if i.shared {
		return errors.New("informer is run by its factory")
	}
	return i.engine.Run(ctx)
}

// Synced returns a channel that is closed when the copy is complete for the first time
// in this run, or in the next one if Run was not called yet. It is never closed if the
// run ends before that: see WaitForSync.
func (i *Informer[T]) Synced() <-chan struct{} { return i.engine.Current().Synced() }

// WaitForSync waits for Synced. It returns the error of ctx, or [ErrStopped] if the run
// ended before.
func (i *Informer[T]) WaitForSync(ctx context.Context) error {
	return i.engine.Current().Wait(ctx)
}

// HasSynced reports whether Synced is closed.
func (i *Informer[T]) HasSynced() bool {
	select {
	case <-i.Synced():
		return true
	default:
		return false
	}
}

// Snapshot returns the current state.
func (i *Informer[T]) Snapshot() Snapshot[T] {
	return Snapshot[T]{decoder: &i.decoder, state: i.engine.Current().Snapshot()}
}

// Get calls Snapshot().Get.
func (i *Informer[T]) Get(key string) (T, bool) { return i.Snapshot().Get(key) }

// All calls Snapshot().All.
func (i *Informer[T]) All() iter.Seq2[string, T] { return i.Snapshot().All() }

// Namespace calls Snapshot().Namespace.
func (i *Informer[T]) Namespace(namespace string) iter.Seq2[string, T] {
	return i.Snapshot().Namespace(namespace)
}

// Select calls Snapshot().Select.
func (i *Informer[T]) Select(namespace string, selector labels.Selector) iter.Seq2[string, T] {
	return i.Snapshot().Select(namespace, selector)
}

// Len returns the number of objects, including those that cannot be decoded.
func (i *Informer[T]) Len() int { return i.Snapshot().Len() }

// Stats returns the informer's memory use.
func (i *Informer[T]) Stats() Stats { return statsOf(i.engine) }

// Engine returns the engine of the informer, for other packages of this module.
func (i *Informer[T]) Engine() *engine.Engine { return i.engine }

// Relist makes a running informer read the whole state again, and returns at once.
// Handlers and other readers see the differences as ordinary changes. It is for programs
// that have found the copy to differ from the server: see [reflector.Reflector.Relist].
func (i *Informer[T]) Relist() { i.engine.Current().Reflector().Relist() }

// Retry ends the wait of an informer whose last request failed, for a program that has corrected
// the cause: see [reflector.Reflector.Retry].
func (i *Informer[T]) Retry() { i.engine.Current().Reflector().Retry() }

// Write applies deltas to the copy, and returns when readers can see them. The source
// does not know about them: its next state of an object, or its next list, replaces
// them. Write is for tests, and for programs that want to read their own writes to the
// server. Each delta must have its key. One that is Listed begins a list, which ends with a
// Bookmark that is Listed.
func (i *Informer[T]) Write(deltas ...delta.Delta[*wire.Object]) {
	i.engine.Current().Apply(deltas)
}
