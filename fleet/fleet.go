// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/internal/undecodable"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// syncPoll is how often WaitForSync checks in-memory state.
const syncPoll = 20 * time.Millisecond

// ErrRunning is returned by a second Run.
var ErrRunning = errors.New("fleet is running already, or has run")

// Options tune a [Fleet]. The zero value, and nil, are the defaults.
type Options struct {
	// Resources are patterns of the resources to mirror: "pods", "deployments.apps",
	// "*.apps", "deployments.*" or "*". Only resources that can be listed and watched are
	// mirrored, each in one version. Secrets, events and leases are left out unless a
	// pattern without a star names them. Nil means "*"; an empty list is an error.
	Resources []string
	// Except are patterns of resources not to mirror. They take precedence over
	// Resources.
	Except []string
	// Scope limits which objects are mirrored from clusters whose [Entry] has no scope.
	// Default: the whole cluster.
	Scope Scope
	// Fast keeps objects as they were received. Default: objects are packed, which takes
	// a tenth of the memory.
	Fast bool
	// Settling is the share of one processor that may be used to pack objects densely
	// that have not changed for a while, see [watershed.PackingOptions]. Less is used
	// while states arrive. Default 0.25.
	Settling float64
	// Drop lists metadata fields to discard from each object. Default: none.
	Drop wire.Fields
	// Transform is called once for every state of every object before it is stored.
	Transform func(*wire.Object) (*wire.Object, error)
	// Budget limits the load that reading a cluster's state puts on its API server.
	Budget Budget
	// Lists limits how many resources are listed at once in the whole fleet. Default: 6
	// for each processor.
	Lists int
	// Window limits, in bytes, the states of one resource that are kept for slow readers.
	// Default 64 MiB.
	Window int64
	// History limits, in bytes and for the whole fleet, the changes that are kept for
	// readers of single clusters that use the servers' versions, see [Feed]. Above the
	// limit, the oldest changes of all feeds are dropped. Default: no history, and no
	// feeds.
	History int64
	// Decoded limits, approximately, the bytes of recently decoded values that are kept.
	// Default 64 MiB.
	Decoded int
	// Reflector tunes the lists and watches.
	Reflector reflector.Options
	// Report, if it is not nil, includes the fleet's informers while they run.
	Report *watershed.Report
	// Logger receives a line when a cluster goes live, when it or one of its resources
	// begins to fail and when that ends, and the progress of the first sync. Each retry
	// has level Debug. Default: slog.Default().
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
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// Fleet is a copy of many clusters. All methods are safe for concurrent use.
type Fleet struct {
	directory Directory
	opts      Options
	selection selection
	slot      uint64 // the slot of revisions, see clock.go
	gate      *gate
	packing   *watershed.Packing
	recent    *wire.Recent
	journal   *journal

	// undecodable counts states of objects that could not be decoded. reported records
	// which ones have been logged.
	undecodable atomic.Uint64
	reported    undecodable.Log

	// mu guards the fields below. It is taken before a member's.
	mu      sync.Mutex
	running context.Context // nil before Run
	told    bool            // whether the directory has reported its clusters
	members map[string]*Member
	// aliases maps the other names of clusters to those of their members. ways has the
	// entries that lead to each member.
	aliases map[string]string
	ways    map[string][]Entry
	runs    sync.WaitGroup

	// resources guards collections. It is taken after a member's.
	resources   sync.Mutex
	collections map[schema.GroupResource]*collection
}

// KeepsHistory reports whether the fleet has feeds, see [Options.History].
func (f *Fleet) KeepsHistory() bool { return f.opts.History > 0 }

// New returns a fleet of the clusters of a directory. It does not connect to any cluster
// before [Fleet.Run]. A nil opts means the defaults.
func New(d Directory, opts *Options) (*Fleet, error) {
	if d == nil {
		return nil, errors.New("fleet: no directory")
	}
	f := &Fleet{directory: d, opts: opts.withDefaults(), slot: newSlot(), members: map[string]*Member{}, collections: map[schema.GroupResource]*collection{}}
	var err error
	if f.selection, err = newSelection(f.opts.Resources, f.opts.Except); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if err := f.opts.Scope.validate(); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	f.journal = newJournal(f)
	f.gate = newGate(f.opts.Lists, fleetPatience)
	f.recent = wire.NewRecent(f.opts.Decoded)
	if !f.opts.Fast {
		f.packing = watershed.NewPacking(&watershed.PackingOptions{Settling: f.opts.Settling, Busy: f.gate.busy})
	}
	return f, nil
}

func (f *Fleet) memory() watershed.Memory {
	if f.opts.Fast {
		return watershed.Fast
	}
	return watershed.Packed
}

// Run mirrors the clusters until ctx ends, and returns after everything that it started
// has returned. After that the fleet has no objects, and loops over [View.Watch] have
// ended. An error is the directory's. Run can be called once.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	if f.running != nil {
		f.mu.Unlock()
		return ErrRunning
	}
	f.running = ctx
	f.mu.Unlock()

	defer timer.Every(time.Minute, f.tidy)()
	f.runs.Go(func() { f.journal.run(ctx) })
	if f.opts.History > 0 {
		f.runs.Go(func() { f.forget(ctx) })
	}
	err := f.directory.Follow(ctx, f.admit)
	if err != nil {
		err = fmt.Errorf("fleet: directory: %w", err)
	} else {
		<-ctx.Done() // a directory may return early if its list never changes
	}
	cancel()
	f.runs.Wait()
	f.empty()
	return err
}

// tidy drops changes that are too old from the logs, also while nothing is published.
func (f *Fleet) tidy() {
	for _, c := range f.all() {
		c.log.Expire()
	}
}

// empty drops all members. Readers do not receive a Deleted for each object: their logs
// are closed.
func (f *Fleet) empty() {
	for _, c := range f.all() {
		c.log.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		m.leave()
	}
	clear(f.members)
	f.recent.Clear()
}

// all returns the collections.
func (f *Fleet) all() []*collection {
	f.resources.Lock()
	defer f.resources.Unlock()
	return slices.Collect(maps.Values(f.collections))
}

// collection returns the collection of a resource, and creates it if necessary.
func (f *Fleet) collection(r schema.GroupResource) *collection {
	f.resources.Lock()
	defer f.resources.Unlock()
	c := f.collections[r]
	if c == nil {
		c = newCollection(r, f.opts.Window, f.slot)
		f.collections[r] = c
	}
	return c
}

// admit makes the members match the entries of the directory.
func (f *Fleet) admit(entries []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running.Err() != nil {
		return
	}
	f.told = true
	there := map[string]bool{}
	for _, e := range f.mergeLocked(entries) {
		if err := ValidateName(e.Name); err != nil || there[e.Name] {
			f.opts.Logger.Error("cluster left out: its name is not valid or occurs twice", "cluster", e.Name, "err", err)
			continue
		}
		there[e.Name] = true
		f.admitLocked(e)
		f.journal.disturb(f.members[e.Name])
	}
	for name, m := range f.members {
		if !there[name] {
			delete(f.members, name)
			m.leave()
			m.logger.Info("cluster removed")
		}
	}
	f.nameLocked()
}

// admitLocked starts a member, or passes a new entry to an existing one. Another server
// may be another cluster: then a new member replaces the old one when it has synced.
func (f *Fleet) admitLocked(e Entry) {
	m := f.members[e.Name]
	if m != nil {
		access, host := m.way()
		scoped := f.scopeOf(e) == m.Scope()
		switch {
		case e.Err != nil, access == "":
			m.use(e)
			return
		case e.Access == access && scoped:
			m.relisted()
			return
		case e.Config != nil && e.Config.Host == host && scoped:
			m.use(e)
			return
		}
		m.logger.Info("the name leads to another server or scope", "host", e.Config.Host, "scope", f.scopeOf(e), "was", host)
		m.retire()
	}
	f.beginLocked(e, m)
}

// beginLocked starts a member. It replaces another member if before is not nil.
func (f *Fleet) beginLocked(e Entry, before *Member) {
	next := newMember(f, e.Name)
	next.before = before
	next.use(e)
	f.members[e.Name] = next
	ctx, end := context.WithCancel(f.running)
	next.end = end
	f.runs.Go(func() {
		defer end()
		next.run(ctx)
	})
}

// Members returns the clusters, sorted by name.
func (f *Fleet) Members() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.members), func(a, b *Member) int { return cmp.Compare(a.name, b.name) })
}

// Member returns the cluster with a name. If several names of the directory lead to one
// cluster, it is mirrored once, under one of them, and found by all: see
// [Member.Aliases].
func (f *Fleet) Member(name string) (*Member, bool) {
	name = f.resolve(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.members[name]
	return m, ok
}

// Known reports whether the directory has reported its clusters.
func (f *Fleet) Known() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told
}

// Resources returns the resources that are mirrored in any cluster, sorted by name.
func (f *Fleet) Resources() []schema.GroupResource {
	var all []schema.GroupResource
	for _, c := range f.all() {
		if len(*c.parts.Load()) > 0 {
			all = append(all, c.resource)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

// Undecodable returns how many states of objects could not be decoded, of those that a
// reader wanted decoded. Each is logged once.
func (f *Fleet) Undecodable() uint64 { return f.undecodable.Load() }

// WaitForSync waits until the directory has reported its clusters, and each of them has
// synced or has been found to be unreachable: see [Member.WaitForSync]. The error is that
// of ctx.
func (f *Fleet) WaitForSync(ctx context.Context) error {
	for {
		f.mu.Lock()
		told := f.told
		f.mu.Unlock()
		if told {
			break
		}
		if err := timer.Sleep(ctx, syncPoll); err != nil {
			return fmt.Errorf("wait for the directory: %w", err)
		}
	}
	for _, m := range f.Members() {
		if err := m.WaitForSync(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}
