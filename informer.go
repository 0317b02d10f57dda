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
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// ErrNoResource is returned for a type whose resource is not known, if
// [Options.Resource] is not set.
var ErrNoResource = errors.New("resource is not known: set Options.Resource")

// Informer keeps a copy of one resource and returns its objects as values of type T: a
// Go type such as *corev1.Pod, *unstructured.Unstructured,
// *metav1.PartialObjectMetadata, or *[wire.Object]. All methods are safe for concurrent
// use.
type Informer[T any] struct {
	decoder decoder[T]
	engine  *engine
	resync  time.Duration
	// shared means that a factory runs the informer.
	shared bool
	// sharing lets the handlers of the current life share decoded changes. The engine's
	// mu guards it.
	sharing *sharing[T]
}

// New returns an informer of a cluster's resource. It does not connect to the server
// before [Informer.Run]. A nil opts means the defaults.
func New[T wire.Pointer[P], P any](cluster *kube.Cluster, opts *Options[T]) (*Informer[T], error) {
	o := opts.withDefaults()
	query, err := queryOf[T](&o)
	if err != nil {
		return nil, err
	}
	form := storedForm{o.Disk, o.Drop, o.Transform != nil || o.TransformBytes != nil, o.TransformName}
	if o.Stored, err = form.of(cluster, query); err != nil {
		return nil, err
	}
	c := newCodec[T, P](o.Memory.recent())
	i := &Informer[T]{}
	e, err := engineOf(cluster, clusterSource, query, o.life(c, &i.decoder))
	if err != nil {
		return nil, err
	}
	i.init(e, c, &o)
	return i, nil
}

// FromSource returns an informer of anything that can be listed and watched. It ignores
// the options that select what to read.
func FromSource[T wire.Pointer[P], P any](source reflector.Source[*wire.Object], opts *Options[T]) *Informer[T] {
	o := opts.withDefaults()
	return fromSource(source, newCodec[T, P](o.Memory.recent()), &o)
}

// FromSourceWith is FromSource for values of any type, which a codec decodes.
func FromSourceWith[T any](source reflector.Source[*wire.Object], c Codec[T], opts *Options[T]) *Informer[T] {
	o := opts.withDefaults()
	return fromSource(source, c.codec(o.Memory.recent()), &o)
}

func fromSource[T any](source reflector.Source[*wire.Object], c codec[T], o *Options[T]) *Informer[T] {
	i := &Informer[T]{}
	opts := o.life(c, &i.decoder)
	if o.Cluster != "" || o.Name != "" {
		opts.reflector.Logger = opts.reflector.Logger.With("cluster", o.Cluster, "resource", o.Name)
	}
	e := newEngine(source, opts)
	e.cluster, e.resource = o.Cluster, o.Name
	i.init(e, c, o)
	return i
}

func (i *Informer[T]) init(e *engine, c codec[T], o *Options[T]) {
	i.engine, i.resync = e, o.Resync
	i.decoder.codec, i.decoder.logger, i.decoder.failures = c, o.Logger, &e.undecodable
	if o.Mutated != nil && !c.raw {
		d := newDetector(c.fresh, o.Mutated)
		i.decoder.codec.decode = d.watch(c.decode)
		// States share no parts of their values, so that a mutation is found in one
		// state only.
		i.decoder.codec.like = func(o, _ *wire.Object, _ T) (T, error) { return i.decoder.codec.decode(o) }
		i.decoder.codec.held = func(*wire.Object) (T, bool) { return *new(T), false }
		e.add(d, i)
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
	if selection == All {
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
	return i.engine.run(ctx)
}

// Synced returns a channel that is closed when the copy is complete for the first time
// in this run, or in the next one if Run was not called yet. It is never closed if the
// run ends before that: see WaitForSync.
func (i *Informer[T]) Synced() <-chan struct{} { return i.engine.current.Load().synced }

// WaitForSync waits for Synced. It returns the error of ctx, or [ErrStopped] if the run
// ended before.
func (i *Informer[T]) WaitForSync(ctx context.Context) error {
	return i.engine.current.Load().wait(ctx)
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
	return Snapshot[T]{decoder: &i.decoder, state: i.engine.current.Load().store.Snapshot()}
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
func (i *Informer[T]) Stats() Stats { return i.engine.stats() }

// Transformed returns an object of the server as the informer stores it: without the fields
// that [Options.Drop] lists, and after its transforms.
func (i *Informer[T]) Transformed(o *wire.Object) (*wire.Object, error) {
	transform := guarded(i.engine.opts.transform)
	if transform == nil {
		return o, nil
	}
	return transform(o)
}

// Relist makes a running informer read the whole state again, and returns at once.
// Handlers and other readers see the differences as ordinary changes. It is for programs
// that have found the copy to differ from the server: see [reflector.Reflector.Relist].
func (i *Informer[T]) Relist() { i.engine.current.Load().reflector.Relist() }

// RelistBack is Relist for a server that was restored from a backup and has advanced since.
// Its states replace newer ones of the copy: see [reflector.Reflector.RelistBack].
func (i *Informer[T]) RelistBack() { i.engine.current.Load().reflector.RelistBack() }

// Retry ends the wait of an informer whose last request failed, for a program that has corrected
// the cause: see [reflector.Reflector.Retry].
func (i *Informer[T]) Retry() { i.engine.current.Load().reflector.Retry() }

// Write applies deltas to the copy, and returns when readers can see them. The source
// does not know about them: its next state of an object, or its next list, replaces
// them. Write is for tests, and for programs that want to read their own writes to the
// server. Each delta must have its key. One that is Listed begins a list, which ends with a
// Bookmark that is Listed.
func (i *Informer[T]) Write(deltas ...delta.Delta[*wire.Object]) {
	i.engine.current.Load().apply(deltas)
}
