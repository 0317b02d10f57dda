// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/mirror"
	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// Options tune a [Fleet]. The zero value, and nil, are the defaults.
type Options struct {
	// Resources lists patterns that select the resources to mirror, in forms such as
	// "pods", "deployments.apps", "*.apps", "deployments.*" or "*". Only resources that
	// can be listed and watched are mirrored, each in one version. Secrets, events and
	// leases are left out unless a pattern without a star names them. Nil means "*"; an
	// empty list is an error.
	Resources []string
	// Except lists patterns that select resources not to mirror. They take precedence
	// over Resources.
	Except []string
	// Expendable lists patterns that select resources to mirror no longer if memory is
	// scarce, see [PressureFull]. Default: none.
	Expendable []string
	// Scope limits which objects are mirrored from clusters whose [Entry] has no scope.
	// Default: the whole cluster.
	Scope Scope
	// Fast keeps objects as they were received. Default: objects are packed, and take a
	// tenth of the memory that they take with Fast.
	Fast bool
	// Settling limits the share of one processor that is used to pack objects densely
	// when they have not changed for a while, see [watershed.PackingOptions]. Dense
	// packing uses less than that while objects of lists arrive. Default 0.25.
	Settling float64
	// Drop lists metadata fields to discard from each object. Default: none.
	Drop wire.Fields
	// Transform is called once for every state of every object before it is stored.
	Transform func(*wire.Object) (*wire.Object, error)
	// Facets lists values to keep outside the packed bytes of objects, for queries: "default", and
	// RESOURCE:PATH for others, such as "certificates.cert-manager.io:.status.notAfter". The
	// default ones are those of every kind (UID, age, owners, managers and their API versions), of
	// pods (images, addresses, restarts, requests, limits, node, phase), and the printer columns
	// and selectableFields of other kinds that are plain fields. They cost about 145 bytes for a
	// pod. A path into the content of Secrets is an error. Default: none.
	Facets []string
	// Disk, if it is not nil, has the files in which the fleet keeps its objects. After a
	// restart they can be read at once, and are listed only if the server does not have the
	// changes since: see [watershed.Options.Disk]. Secrets are kept only if the directory has
	// keys. Default: nothing is stored.
	Disk *disk.Directory
	// LastState lets readers get the stored objects of a cluster that does not answer after a
	// restart. They are used only if they were stored over the same connection and the
	// cluster's UID was known. They are dropped if the server then refuses the credentials,
	// presents an invalid certificate, does not serve the Kubernetes API, or returns another UID
	// or none. They are not dropped if the request for the UID times out or fails with a 5xx.
	// While a member is [Member.Unconfirmed], its cluster cannot decide about readers, so the
	// program must. Default: a cluster can be read only after it has answered.
	LastState bool
	// TransformName names Transform, with its version. Without it, objects with a Transform
	// are not stored.
	TransformName string
	// Budget limits the load that initial lists and relists put on each API server.
	Budget Budget
	// Limits bound what each cluster may make the fleet keep.
	Limits Limits
	// Lists limits how many resources are listed at once in the whole fleet. Default: 6
	// for each processor.
	Lists int
	// Window limits, in bytes, the states of one resource that are kept for slow readers.
	// Default 64 MiB.
	Window int64
	// History limits, in bytes and for the whole fleet, the changes that are kept for
	// feeds. A feed is for readers of a single cluster, and uses the versions of its API
	// server, see [Member.Feed]. Above the limit, the oldest changes of all feeds are dropped.
	// Default: no history is kept, and there are no feeds.
	History int64
	// Decoded limits, approximately, the bytes of recently decoded values that are kept.
	// Default 64 MiB.
	Decoded int
	// Term returns the present [Term] of the process, which is never nil, for a fleet whose
	// revisions must not be issued by another process too. Default: a term with a random slot,
	// the clock of this machine and no bound.
	Term func() *Term
	// VerifyEvery is how often each resource of each cluster is compared with its API
	// server, and repaired if it differs: see [Member.Verify]. The comparisons are spread
	// over that time. Default: never.
	VerifyEvery time.Duration
	// Reflector tunes the lists and watches.
	Reflector reflector.Options
	// Report, if it is not nil, is the report that includes the fleet's informers while
	// they run.
	Report *watershed.Report
	// Trace, if it is not nil, follows the requests to clusters and the changes that arrive from
	// them. Default: nothing is followed.
	Trace Trace
	// Logger receives a line when a cluster goes live, and when a cluster or one of its
	// resources begins or ceases to fail. It also receives the progress of the first
	// sync. Retries are logged at level Debug. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Budget.Lists <= 0 {
		opts.Budget.Lists = 4
	}
	if opts.Lists <= 0 {
		opts.Lists = fleetLists * runtime.GOMAXPROCS(0)
	}
	if opts.Window <= 0 {
		opts.Window = 64 << 20
	}
	if opts.Decoded <= 0 {
		opts.Decoded = 64 << 20
	}
	if opts.Term == nil {
		own := collection.NewOwnTerm()
		opts.Term = func() *Term { return own }
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// Budget limits the load that initial lists and relists put on one API server.
// Watches are not limited.
type Budget struct {
	// Lists limits how many resources are listed at once. A list that has received
	// nothing for five seconds does not count. Default 4.
	Lists int
	// BytesPerSecond limits the rate of all these lists together. If it is set, states
	// are listed in pages, not streamed: a server ends a stream that is read too slowly.
	// Default: no limit.
	BytesPerSecond int64
}

// fleetLists is how many resources are listed at once in the whole fleet, for each
// processor: objects that have arrived and are not stored yet take some MB for each.
const fleetLists = 6

// Trace follows the requests of a fleet and a sample of the changes that it reads. Its methods
// are called by many goroutines, which wait for them. A change is identified by its cluster,
// its resource and its version.
type Trace interface {
	// Wrap returns the transport for the fleet's own requests to a cluster.
	Wrap(cluster string, next http.RoundTripper) http.RoundTripper
	// Arrived is called for each change that a watch has read and decoded.
	Arrived(cluster string, r schema.GroupResource, version uint64)
	// Active reports whether a change of the sample is on its way. Stored is called only while
	// it is.
	Active() bool
	// Stored is called for each change that readers of the fleet can see now.
	Stored(cluster string, r schema.GroupResource, version uint64)
}

// windows is how many times [Options.Window] the logs of all resources may take together.
// A cluster with many resources could fill the window of each of them.
const windows = 16

// settings are the options of a fleet and the values that are derived from the options.
// All members of the fleet share one settings.
type settings struct {
	Options
	// tuned are the settings that can change, see [Fleet.Reconfigure].
	tuned atomic.Pointer[tuned]
	// gate limits how many lists of all members run at once.
	gate *admission.Gate
	// diskReader reads the past of the feeds.
	diskReader *history.DiskReader
	// mirrors are the settings of the mirrors.
	mirrors  mirror.Settings
	pressure quota.Process
}

// newSettings fills in the defaults and checks the options.
func newSettings(opts *Options) (*settings, error) {
	s := &settings{Options: opts.withDefaults()}
	s.diskReader = history.NewDiskReader(s.Logger)
	t, err := newTuned(Tuning{
		Resources: s.Resources, Except: s.Except, Expendable: s.Expendable, Limits: s.Limits, History: s.History,
	})
	if err != nil {
		return nil, err
	}
	s.tuned.Store(t)
	if err := selection.Validate(s.Scope); err != nil {
		return nil, err
	}
	s.gate = admission.NewGate(s.Lists, upstream.FleetPatience)
	memory, packing := watershed.Fast, (*watershed.Packing)(nil)
	if !s.Fast {
		memory = watershed.Packed
		packing = watershed.NewPacking(&watershed.PackingOptions{Settling: s.Settling, Busy: s.gate.IsBusy})
	}
	plans, err := facets.NewCatalog(s.Facets)
	if err != nil {
		return nil, err
	}
	s.mirrors = mirror.Settings{
		Facets: plans,
		Informer: watershed.SourceOptions[*wire.Object]{
			Memory: memory, Packing: packing, Drop: s.Drop, TransformBytes: s.Transform, Report: s.Report,
			Reflector: s.Reflector, Logger: s.Logger,
		},
		TransformName: s.TransformName, Disk: s.Disk.Storage(), DiskReader: s.diskReader,
		Loads: admission.NewLoadQueue(runtime.GOMAXPROCS(0)), Window: s.Window,
		History: s.history, Selection: s.selection, Resources: func() int { return s.limits().Resources },
	}
	s.mirrors.Informer.Reflector.ListOnly = s.Reflector.ListOnly || s.Budget.BytesPerSecond > 0
	if s.Trace != nil {
		s.mirrors.Trace = s.Trace
	}
	return s, nil
}

// keepsLast reports whether the last state of a cluster can be read before the cluster answers.
func (s *settings) keepsLast() bool { return s.LastState && s.mirrors.Stores() }

// wrap returns the function that wraps the transport of a cluster, nil without a trace.
func (s *settings) wrap(cluster string) func(http.RoundTripper) http.RoundTripper {
	if s.Trace == nil {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper { return s.Trace.Wrap(cluster, next) }
}

// scopeOf returns the scope of an entry.
func (s *settings) scopeOf(e Entry) Scope {
	if e.Scope != nil {
		return *e.Scope
	}
	return s.Scope
}

// Tuning are the options that can change while a fleet runs. The fields are those of [Options].
type Tuning struct {
	Resources, Except, Expendable []string
	Limits                        Limits
	History                       int64
}

// tuned is a tuning and the values that are derived from it. It is replaced,
// not modified.
type tuned struct {
	Tuning
	// reduced is the selection without the expendable resources.
	selection, reduced selection.Selection
}

// newTuned checks the patterns.
func newTuned(t Tuning) (*tuned, error) {
	all, err := selection.New(t.Resources, t.Except)
	if err != nil {
		return nil, err
	}
	reduced, err := selection.New(t.Resources, slices.Concat(t.Except, t.Expendable))
	if err != nil {
		return nil, fmt.Errorf("expendable resources: %w", err)
	}
	return &tuned{t, all, reduced}, nil
}

// selection returns which resources to mirror.
func (s *settings) selection() selection.Selection {
	if s.pressure.IsShed() {
		return s.tuned.Load().reduced
	}
	return s.tuned.Load().selection
}

// limits returns what bounds each cluster. The defaults are those of now: the memory limit of
// the process may be set after the fleet is made.
func (s *settings) limits() Limits { return s.tuned.Load().Limits.withDefaults() }

// history returns how many bytes of changes are kept for feeds.
func (s *settings) history() int64 {
	return s.pressure.Share(s.tuned.Load().History, PressureHistory)
}

// windows returns how many bytes of states are kept for all slow readers.
func (s *settings) windows() int64 { return s.pressure.Share(windows*s.Window, PressureHistory) }

// Selected returns what a fleet with these options lists and watches in a cluster that serves
// the given resources: the resources that it mirrors, and those of which it reads only the
// metadata, each in alphabetical order. It is for programs that compute the rights that a
// fleet needs.
func (o *Options) Selected(served []kube.Resource) (mirrored, metadata []kube.Resource, err error) {
	settings, err := newSettings(o)
	if err != nil {
		return nil, nil, err
	}
	wanted, hidden := settings.selection().Wanted(settings.Scope, served)
	byName := func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }
	for _, at := range slices.SortedFunc(maps.Keys(wanted), byName) {
		if hidden[at] {
			metadata = append(metadata, wanted[at])
		} else {
			mirrored = append(mirrored, wanted[at])
		}
	}
	return mirrored, metadata, nil
}
