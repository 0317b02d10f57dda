// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"log/slog"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// All as a Namespace, LabelSelector or FieldSelector selects everything, also where
// [FactoryOptions] say otherwise.
const All = "*"

// Options tune an [Informer]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Resource is what to read. Default: the resource of T, if that is a type
	// of k8s.io/api.
	Resource schema.GroupVersionResource
	// Namespace is where to read it. Default: everywhere, or that of the factory.
	Namespace string
	// LabelSelector and FieldSelector say which objects, in the syntax of
	// kubectl. Default: all, or those of the factory.
	LabelSelector, FieldSelector string
	// Tweak has the last word on the parameters of every list and watch.
	Tweak func(*metav1.ListOptions)
	// Drop is what of each object's metadata is not kept. Default: nothing.
	Drop wire.Fields
	// TransformBytes is called once for every state before it is kept, and
	// returns the state to keep. If it fails, the object's last state stays, and
	// the loss is counted in the status.
	TransformBytes func(*wire.Object) (*wire.Object, error)
	// Transform is the same on the value, after TransformBytes. It may return
	// another value or the same one, changed: what it gets is its own. It costs a
	// decoding and an encoding, unless T is *wire.Object.
	Transform func(T) (T, error)
	// Memory is how objects are kept that nobody looks at. Default: Fast.
	Memory Memory
	// Packing is shared by all packed informers that it is given to. Default: each
	// has its own.
	Packing *Packing
	// Tap, if it is not nil, is called with every batch of changes when readers can
	// see it, in order, and with the state after it: first when the informer has
	// synced, without changes, and then never with a state that it was not told the
	// changes to. The informer waits for it: it is for who keeps several informers
	// in step, and must be quick and not call the informer. Handlers and Watch are
	// for all others. A batch whose changes are none has a new version only. Whole is
	// false while a list is being applied: the state is then between two that the
	// server had, and its version says nothing.
	Tap func(s Snapshot[T], changes []store.Change[*wire.Object], whole bool)
	// Resync is how often handlers that say nothing else are given every object
	// again, as an Update from itself to itself. Default: never.
	Resync time.Duration
	// Window bounds, in bytes, the states kept for slow readers. Default 64 MiB. A
	// reader that falls out of it holds the last states it saw of what has changed
	// since: there is a quarter of the window for that, and more is more.
	Window int64
	// Reflector tunes how the server is asked.
	Reflector reflector.Options
	// Report, if there is one, knows the informer while it runs.
	Report *Report
	// Cluster and Name are what an informer made from a source is called in reports
	// and logs. Those of a cluster are called what they read.
	Cluster, Name string
	// Mutated, for tests, is told of objects that somebody changed after they
	// were handed out: what it was, what it is now. Everything handed out is
	// kept and compared, every second and at the end of Run.
	Mutated func(key string, was, is T)
	// Logger is for the informer and its reflector. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options[T]) withDefaults() Options[T] {
	var opts Options[T]
	if o != nil {
		opts = *o
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Reflector.Logger == nil {
		opts.Reflector.Logger = opts.Logger
	}
	return opts
}

// ofFactory returns the name of an option that is set and that a factory has for all its
// informers, "" if there is none. The options may be nil.
func (o *Options[T]) ofFactory() string {
	if o == nil {
		return ""
	}
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"Tweak", o.Tweak != nil},
		{"Drop", o.Drop != 0},
		{"TransformBytes", o.TransformBytes != nil},
		{"Transform", o.Transform != nil},
		{"Memory", o.Memory != Fast},
		{"Packing", o.Packing != nil},
		{"Tap", o.Tap != nil},
		{"Window", o.Window != 0},
		{"Reflector", !reflect.ValueOf(o.Reflector).IsZero()},
		{"Report", o.Report != nil},
		{"Logger", o.Logger != nil},
	} {
		if option.set {
			return option.name
		}
	}
	return ""
}

// life is what of the options a life of the informer's engine needs.
func (o *Options[T]) life(c codec[T], i *Informer[T]) lifeOptions {
	var tap func(*snapshot, []change, bool)
	if o.Tap != nil {
		tap = func(s *snapshot, changes []change, whole bool) {
			o.Tap(Snapshot[T]{informer: i, state: s}, changes, whole)
		}
	}
	return lifeOptions{
		tap:       tap,
		transform: chain(o.Drop, o.TransformBytes, c.transform(o.Transform)),
		memory:    o.Memory,
		packing:   o.Packing,
		recent:    c.recent,
		report:    o.Report,
		window:    o.Window,
		reflector: o.Reflector,
	}
}

// transformation makes the state to keep of the state that came.
type transformation = func(*wire.Object) (*wire.Object, error)

// chain drops fields and then does one transformation after the other, nil if there
// is nothing to do.
func chain(drop wire.Fields, steps ...transformation) transformation {
	steps = slices.DeleteFunc(steps, func(t transformation) bool { return t == nil })
	if drop == 0 && len(steps) == 0 {
		return nil
	}
	return func(o *wire.Object) (*wire.Object, error) {
		o = o.Without(drop)
		for _, step := range steps {
			var err error
			if o, err = step(o); err != nil || o == nil {
				return nil, err
			}
		}
		return o, nil
	}
}
