// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/kube"
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
	// Memory selects how to store objects between reads. Default: Packed.
	Memory Memory
	// Packing is shared by all packed informers that have it in their options. Default:
	// each has its own.
	Packing *Packing
	// Values configures which decoded values are kept for the next reads.
	Values ValueOptions
	// Disk, if it is not nil, has the files in which the informer keeps its objects, so that
	// the next run, also of another process, need not list them. At the beginning of a run
	// the informer loads the stored state, and follows the changes since. Until it has caught
	// up with the server, [Informer.HasSynced] is false, handlers are not called, and
	// [Informer.Snapshot] returns the stored state with the changes since. Secrets are kept
	// only if the directory has keys. Default: nothing is stored.
	Disk *disk.Directory
	// TransformName names Transform and TransformBytes, with their version. An informer with
	// transforms that is stored needs it: states that were stored by another version are not
	// used.
	TransformName string
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

// engine returns the options of the informer's engine.
func (o *Options[T]) engine(c codec[T]) engine.Options {
	return engine.Options{
		Transform: engine.Chain(o.Drop, o.TransformBytes, c.transform(o.Transform)),
		Drops:     o.TransformBytes == nil && o.Transform == nil,
		Packed:    o.Memory == Packed,
		Packing:   o.Packing.of(),
		Values:    c.values,
		Running:   o.Report.add,
		Window:    o.Window,
		Reflector: o.Reflector,
	}
}

// SourceOptions configures an [Informer] of a source, see [FromSource]. The zero value, and
// nil, are the defaults. The fields without a comment are those of [Options].
type SourceOptions[T any] struct {
	// Cluster and Name identify the informer in reports and logs.
	Cluster, Name string

	Drop           wire.Fields
	TransformBytes func(*wire.Object) (*wire.Object, error)
	Transform      func(T) (T, error)
	Memory         Memory
	Packing        *Packing
	Values         ValueOptions
	Resync         time.Duration
	Window         int64
	Reflector      reflector.Options
	Report         *Report
	Mutated        func(key string, was, is T)
	Logger         *slog.Logger

	// Tap, if it is not nil, is called in order with every batch of changes and the
	// state after it, once readers can see it. The first call is made when the informer
	// has synced, without changes; each later state differs from the one before only by
	// the changes of its call. The informer waits for Tap to return, so Tap must be
	// quick and must not call the informer. It is for programs that keep several
	// informers in step; others use handlers or Watch. A batch without changes has only
	// a new version. Whole is false while a list is being applied: the state is then
	// between two states of the server, and its version is meaningless.
	Tap func(s Snapshot[T], changes []store.Change[*wire.Object], whole bool)
	// Hooks are for other packages of this module.
	Hooks engine.Hooks
}

// common returns the options that an informer of a cluster has too.
func (o *SourceOptions[T]) common() *Options[T] {
	return &Options[T]{
		Drop: o.Drop, TransformBytes: o.TransformBytes, Transform: o.Transform, Memory: o.Memory, Packing: o.Packing,
		Values: o.Values, Resync: o.Resync, Window: o.Window, Reflector: o.Reflector, Report: o.Report,
		Mutated: o.Mutated, Logger: o.Logger,
	}
}

// tap returns the engine's tap, nil if there is none. d is the informer's decoder, which the
// tap does not use before the first run begins.
func (o *SourceOptions[T]) tap(d *decoder[T]) func(*snapshot, []change, bool) {
	call := o.Tap // so that the tap does not keep the options
	if call == nil {
		return nil
	}
	return func(s *snapshot, changes []change, whole bool) {
		call(Snapshot[T]{decoder: d, state: s}, changes, whole)
	}
}

// SharedOptions selects what a [Lease] reads. The zero value, and nil, are the defaults. The
// fields without a comment are those of [Options]. All other options are the factory's: see
// [FactoryOptions].
type SharedOptions[T any] struct {
	Resource                     schema.GroupVersionResource
	Namespace                    string
	LabelSelector, FieldSelector string
	Resync                       time.Duration
	Mutated                      func(key string, was, is T)

	// NewSource, if it is not nil, returns a source of the user's own, which is read instead of
	// the cluster's. The factory runs the informer, waits for it, reports it and frees it like
	// its other informers, and applies its own Drop, Transform, Memory, Window and Reflector.
	//
	// The first lease of a resource and selection with a NewSource calls it. Later ones with a
	// NewSource share the informer, and theirs is not called. If NewSource fails, or if the
	// informer was freed ([FactoryOptions.StopIdle]), the next lease calls its own.
	//
	// NewSource receives the cluster and the query that the options of the lease and of the
	// factory select, and often wraps cluster.Source(q). The source has to apply the query's
	// namespace and selectors: the factory does not filter. NewSource must not call the
	// factory, which is locked.
	//
	// Leases with and without a NewSource never share an informer, so that a lease reads the
	// same source whichever came first. A factory that has leases of both for one resource has
	// two copies of it.
	NewSource func(cluster *kube.Cluster, q kube.Query) (reflector.Source[*wire.Object], error)
}

// common returns the options of the informer, without those of the factory.
func (o *SharedOptions[T]) common() *Options[T] {
	if o == nil {
		return nil
	}
	return &Options[T]{
		Resource: o.Resource, Namespace: o.Namespace, LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector,
		Resync: o.Resync, Mutated: o.Mutated,
	}
}

// Memory is how an informer stores objects between reads: a choice between memory and
// CPU time. In either mode it keeps some recently decoded values for the next reads.
type Memory int

const (
	// Packed compresses objects, with a dictionary made from the resource's own
	// objects. A pod of 5 KB takes 0.6 KB. When it has not changed for half a minute it
	// takes 0.45 KB, or half of that if it is similar to the object with the previous
	// key. Each new state costs some 10 us more, and each read of an object that
	// is not decoded 2 to 10 us more. Names, versions and labels are read without
	// unpacking.
	Packed Memory = iota
	// Fast keeps objects as the server sent them.
	Fast
)

// ValueOptions configures which decoded values an informer keeps for the next reads. The zero
// value is the default.
//
// An informer always keeps the values that it has decoded last, up to 4 MiB. In addition, a value
// earns a place when it is read twice within a time T, and stays until it has not been read
// for T. T is the time in which holding a value costs as much as decoding it again. It follows
// from the measured time to decode the informer's objects, their size with the room that GOGC
// leaves, and BytesPerCPU: typically 10 to 60 s. Handlers and indexes that see every object do
// not count as readers, so that a start keeps nothing.
//
// All informers of a process together keep at most a quarter of GOMEMLIMIT in this way. While the
// process needs more than 85 % of it, T and what may be kept are halved at each check, after each
// collection and each second.
type ValueOptions struct {
	// BytesPerCPU is the price of a CPU in bytes of memory. With a larger value, more values are
	// kept. Default 8 GiB, as cloud providers charge. If it is negative, only the values that
	// were decoded last are kept.
	BytesPerCPU int64
	// Max limits, in bytes, the values of one informer that have earned a place. Default: no
	// limit but that of the process. Objects have one value for each Go type that is read, so
	// an informer keeps at most what client-go would.
	Max int64
}

// cache returns the cache of an informer.
func (o ValueOptions) cache() *valuecache.Cache {
	if o.BytesPerCPU == 0 {
		o.BytesPerCPU = valuecache.DefaultBytesPerCPU
	}
	return valuecache.New(valuecache.Options{
		Recent: valuecache.DefaultRecent, BytesPerCPU: max(o.BytesPerCPU, 0), Max: o.Max,
	})
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
