// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"log/slog"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Everything as a Namespace, LabelSelector or FieldSelector selects everything, and overrides
// [FactoryOptions].
const Everything = "*"

// Options configures an [Informer]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Resource is the resource to read. Default: the resource of T, if T is a type of
	// k8s.io/api.
	Resource schema.GroupVersionResource
	// Namespace is the namespace to read. Default: that of the factory, or else all.
	Namespace string
	// LabelSelector and FieldSelector select the objects to read, in kubectl's syntax.
	// Default: those of the factory, or else all objects.
	LabelSelector, FieldSelector string
	// Tweak can change the parameters of every list and watch. It is applied last.
	Tweak func(*metav1.ListOptions)
	// Drop lists metadata fields to discard from each object. Default: none.
	Drop wire.Fields
	// TransformBytes is called once for every state before it is stored, and returns
	// the state to store. If it fails, the object keeps its last state, and the loss is
	// counted in the status.
	TransformBytes func(*wire.Object) (*wire.Object, error)
	// Transform does the same with the decoded value, after TransformBytes. It owns the
	// value that it receives: it may modify and return it, or return another. It costs
	// a decoding and an encoding, unless T is *wire.Object.
	Transform func(T) (T, error)
	// Memory selects how to store objects between reads. Default: Fast.
	Memory Memory
	// Packing is shared by all packed informers that have it in their options. Default:
	// each has its own.
	Packing *Packing
	// Tap, if it is not nil, is called in order with every batch of changes and the
	// state after it, once readers can see it. The first call is made when the informer
	// has synced, without changes; each later state differs from the one before only by
	// the changes of its call. The informer waits for Tap to return, so Tap must be
	// quick and must not call the informer. It is for programs that keep several
	// informers in step; others use handlers or Watch. A batch without changes has only
	// a new version. Whole is false while a list is being applied: the state is then
	// between two states of the server, and its version is meaningless.
	Tap func(s Snapshot[T], changes []store.Change[*wire.Object], whole bool)
	// Disk, if it is not nil, has the files in which the informer keeps its objects, so that
	// the next run, also of another process, need not list them: see [Stored]. Secrets are
	// kept only if the directory has keys. Default: nothing is stored.
	Disk *disk.Directory
	// TransformName names Transform and TransformBytes, with their version. An informer with
	// transforms that is stored needs it: states that were stored by another version are not
	// used.
	TransformName string
	// Stored has the files of an informer made with [FromSource]. Others ignore it.
	Stored *Stored
	// Resync is how often handlers without a period of their own receive every object
	// again, as an Update with the same old and new state. Default: never.
	Resync time.Duration
	// Window limits, in bytes, the states kept for slow readers. Default 64 MiB. A
	// reader that falls out of it holds the last states that it saw of objects that
	// have changed since. A quarter of the window is reserved for these; any more is in
	// addition to it.
	Window int64
	// Reflector configures how the server is listed and watched.
	Reflector reflector.Options
	// Report, if it is not nil, includes the informer while it runs.
	Report *Report
	// Counters, if it is not nil, counts the work of all informers that have it in their
	// options. Default: each has its own, which [Report.Informers] returns.
	Counters *Counters
	// Batch, if it is not nil, is called after each batch of changes has been stored. The
	// informer waits for it, so it must be quick and must not call the informer.
	Batch func(BatchStats)
	// Cluster and Name identify an informer made with [FromSource] in reports and logs.
	// Other informers are identified by their cluster and resource.
	Cluster, Name string
	// Mutated, for tests, is called with each object that was modified after the
	// informer had returned it: its value before and its value now. All returned values
	// are kept and compared, every second and at the end of Run.
	Mutated func(key string, was, is T)
	// Logger is used by the informer and its reflector. Default: slog.Default().
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

// ofFactory returns the name of an option that is set although the factory sets it for
// all its informers, or "". The options may be nil.
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
		{"Disk", o.Disk != nil},
		{"TransformName", o.TransformName != ""},
		{"Stored", o.Stored != nil},
		{"Window", o.Window != 0},
		{"Reflector", !reflect.ValueOf(o.Reflector).IsZero()},
		{"Report", o.Report != nil},
		{"Counters", o.Counters != nil},
		{"Batch", o.Batch != nil},
		{"Logger", o.Logger != nil},
	} {
		if option.set {
			return option.name
		}
	}
	return ""
}

// engine returns the options of the informer's engine. d is the informer's decoder, which
// the tap does not use before the first life begins.
func (o *Options[T]) engine(c codec[T], d *decoder[T]) engine.Options {
	var tap func(*snapshot, []change, bool)
	if call := o.Tap; call != nil { // so that tap does not keep the options
		tap = func(s *snapshot, changes []change, whole bool) {
			call(Snapshot[T]{decoder: d, state: s}, changes, whole)
		}
	}
	return engine.Options{
		Tap:       tap,
		Transform: engine.Chain(o.Drop, o.TransformBytes, c.transform(o.Transform)),
		Packed:    o.Memory == Packed,
		Packing:   o.Packing.of(),
		Stored:    o.Stored,
		Recent:    c.recent,
		Running:   o.Report.add,
		Counters:  o.Counters,
		Batch:     o.Batch,
		Window:    o.Window,
		Reflector: o.Reflector,
	}
}

// Memory is how an informer stores objects between reads: a choice between memory and
// CPU time. In either mode it keeps some recently decoded values for the next reads.
type Memory int

const (
	// Fast keeps objects as the server sent them.
	Fast Memory = iota
	// Packed compresses objects, with a dictionary made from the resource's own
	// objects. A pod of 5 KB takes 0.6 KB. When it has not changed for half a minute it
	// takes 0.45 KB, or half of that if it is similar to the object with the previous
	// key. Each new state costs some 10 us more, and each read of an object that
	// is not decoded 2 to 10 us more. Names, versions and labels are read without
	// unpacking.
	Packed
)

// recent returns the cache of decoded values for a mode.
func (m Memory) recent() *wire.Recent {
	if m == Packed {
		return wire.NewRecent(4 << 20)
	}
	return wire.NewRecent(64 << 20)
}

// PackingOptions configures a [Packing]. The zero value, and nil, are the defaults.
type PackingOptions struct {
	// Settling is the share of one CPU for packing densely the objects that have not
	// changed for a while. At 0.25 it works a quarter of the time, because it is not
	// urgent and readers may need the CPU. 1 uses all of it. Default 0.25.
	Settling float64
	// Dictionaries limits the memory of dictionaries, and of the samples that they are made
	// from, in bytes. When there is no room for those of another kind, the objects of that
	// kind are not packed. A kind takes about 300 KB, and up to 3 MB if its objects are
	// large. Default 256 MiB.
	Dictionaries int64
	// Busy, if it is not nil, reports whether there is more urgent work. Settling then
	// uses less than a hundredth of one CPU. Busy is called often.
	Busy func() bool
}

// Packing is shared by packed informers: one dictionary for each kind, and turns at
// packing densely, which one informer takes at a time. It costs about 300 KB for each
// kind, as long as an informer runs that has packed objects of the kind.
type Packing struct{ shared *engine.Packing }

// NewPacking returns a packing without dictionaries. A nil opts means the defaults.
func NewPacking(opts *PackingOptions) *Packing {
	var o PackingOptions
	if opts != nil {
		o = *opts
	}
	return &Packing{engine.NewPacking(o.Settling, o.Dictionaries, o.Busy)}
}

// of returns the engine's part of a packing, nil if there is none.
func (p *Packing) of() *engine.Packing {
	if p == nil {
		return nil
	}
	return p.shared
}
