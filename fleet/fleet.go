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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/journal"
	"github.com/watershed-project/watershed/fleet/internal/laststate"
	"github.com/watershed-project/watershed/fleet/internal/mirror"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/internal/undecodable"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/wire"
)

// Fleet is a copy of many clusters. All methods are safe for concurrent use.
type Fleet struct {
	directory Directory
	settings  *settings
	catalog   *collection.Catalog
	journal   *journal.Journal
	values    *valuecache.Cache

	// undecodable counts states of objects that could not be decoded. reported records
	// which ones have been logged.
	undecodable atomic.Uint64
	reported    undecodable.Log
	// changed is sent to when the directory has reported its clusters for the first time.
	changed timer.Broadcast

	// mu guards the fields below. It is taken before a member's.
	mu       sync.Mutex
	running  context.Context // nil before Run
	admitted bool            // whether the directory has reported its clusters
	members  map[string]*Member
	aliases  aliases
	runs     sync.WaitGroup
}

// KeepsHistory reports whether the fleet has feeds, see [Options.History].
func (f *Fleet) KeepsHistory() bool { return f.settings.history() > 0 }

// New returns a fleet of the clusters of a directory. It does not connect to any cluster
// before [Fleet.Run]. A nil opts means the defaults.
func New(d Directory, opts *Options) (*Fleet, error) {
	if d == nil {
		return nil, errors.New("fleet: no directory")
	}
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	f := &Fleet{
		directory: d, settings: s, catalog: collection.NewCatalog(s.Window, s.Term),
		values: valuecache.New(valuecache.Options{Recent: s.Decoded}), members: map[string]*Member{},
	}
	f.journal = journal.New(f.journaled, s.Logger)
	return f, nil
}

// Run mirrors the clusters until ctx ends, and returns after everything that it started
// has returned. After that the fleet has no objects, and loops over [View.Watch] have
// ended. An error is the directory's. Run can be called once; a second call
// returns [watershed.ErrRunning].
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	if f.running != nil {
		f.mu.Unlock()
		return fmt.Errorf("fleet: %w, or has run", watershed.ErrRunning)
	}
	f.running = ctx
	f.mu.Unlock()

	defer timer.Every(time.Minute, f.tidy)()
	f.runs.Go(func() { f.journal.Run(ctx) })
	if f.KeepsHistory() {
		f.runs.Go(func() { objectlog.Trim(ctx, f.settings.history, f.feedLogs) })
	}
	f.runs.Go(func() { objectlog.Trim(ctx, f.settings.windows, f.catalog.Logs) })
	if f.settings.VerifyEvery > 0 {
		f.runs.Go(func() { verify.Rounds(ctx, f.settings.VerifyEvery, f.round) })
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
	for _, c := range f.catalog.All() {
		c.Log().Expire()
	}
	f.settings.diskReader.Expire()
}

// empty drops all members. Readers do not receive a Deleted for each object: their logs
// are closed.
func (f *Fleet) empty() {
	f.catalog.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		m.leave()
	}
	clear(f.members)
	f.values.Suspend()
}

// admit makes the members match the entries of the directory.
func (f *Fleet) admit(entries []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running.Err() != nil {
		return
	}
	if !f.admitted {
		f.admitted = true
		defer f.changed.Send()
	}
	there := map[string]bool{}
	entries = slices.DeleteFunc(entries, func(e Entry) bool {
		err := ValidateName(e.Name)
		if err != nil || there[e.Name] {
			f.settings.Logger.Error("cluster left out: its name is not valid or occurs twice", "cluster", e.Name, "err",
				err)
			return true
		}
		there[e.Name] = true
		return false
	})
	clear(there)
	for _, e := range f.aliases.merge(entries, f.members, f.settings) {
		there[e.Name] = true
		f.admitLocked(e)
		f.members[e.Name].shadow(e.Shadowed)
		f.journal.Disturb(journaled{f.members[e.Name]})
	}
	for name, m := range f.members {
		if !there[name] {
			delete(f.members, name)
			m.leave()
			m.logger.Info("cluster removed")
		}
	}
	f.aliases.assign(f.members)
}

// admitLocked starts a member, or passes a new entry to an existing one. Another server
// may be another cluster: then a new member replaces the old one when it has synced.
func (f *Fleet) admitLocked(e Entry) {
	m := f.members[e.Name]
	if m != nil {
		access, host := m.address()
		scoped := f.settings.scopeOf(e) == m.Scope()
		switch {
		case e.Err != nil, access == "":
			m.use(e)
			return
		case e.Access == access && scoped:
			m.relisted(e)
			return
		case e.Config != nil && e.Config.Host == host && scoped:
			m.use(e)
			return
		}
		m.logger.Info("the name now refers to another server or scope", "host", e.Config.Host, "scope",
			f.settings.scopeOf(e), "was", host)
		m.retire()
	}
	f.beginLocked(e, m)
}

// beginLocked starts a member. It replaces another member if before is not nil.
func (f *Fleet) beginLocked(e Entry, before *Member) {
	next := f.newMember(e.Name)
	next.before = before
	if before != nil {
		next.predecessor, next.notes = before.Identity(), before.notes
	}
	next.use(e)
	f.members[e.Name] = next
	ctx, end := context.WithCancel(f.running)
	next.end = end
	f.runs.Go(func() {
		defer end()
		next.run(ctx)
	})
}

// replace replaces a member whose address leads to another cluster now with a new member.
func (f *Fleet) replace(m *Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running.Err() != nil || f.members[m.Name()] != m {
		return
	}
	m.retire()
	e := m.entry()
	e.Labels = m.Labels()
	f.beginLocked(e, m)
	f.aliases.assign(f.members)
	f.journal.Disturb(journaled{f.members[m.Name()]})
}

// newMember returns a member that has no connection yet, and reports to the fleet. The caller sets
// end before it runs.
func (f *Fleet) newMember(name string) *Member {
	s := f.settings
	to := upstream.NewServer(upstream.Options{
		Name: name, Logger: s.Logger, Lists: s.Budget.Lists, BytesPerSecond: s.Budget.BytesPerSecond,
		Gate: s.gate, Memory: &s.pressure, Limits: s.limits().upstream(),
	})
	m := &Member{
		server: to, logger: to.Logger(), settings: s, notes: &laststate.File{}, since: time.Now(),
		verifier: verify.NewVerifier(to.Logger(), func() { to.Disturb() }),
	}
	m.names.Store(&memberNames{})
	m.mirrors = mirror.NewSet(to, &s.mirrors, f.catalog, m.changed.Send, m.feedBefore)
	to.Disturb = func() {
		f.journal.Disturb(journaled{m})
		m.changed.Send()
	}
	to.Replaced = func() { f.replace(m) }
	to.Disproved = m.disprove
	return m
}

// journaled is a member as the journal sees it.
type journaled struct{ member *Member }

// journaled returns the members for the journal.
func (f *Fleet) journaled() []journal.Member {
	members := f.Members()
	all := make([]journal.Member, len(members))
	for i, m := range members {
		all[i] = journaled{m}
	}
	return all
}

// Logger implements [journal.Member].
func (j journaled) Logger() *slog.Logger { return j.member.logger }

// Examine implements [journal.Member].
func (j journaled) Examine() journal.Examination {
	m := j.member
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.mirrors.Statuses()
	return journal.Examination{
		Status: m.statusLocked(all), Joined: m.since, All: all, Unlisted: m.unlisted,
		Discovery: cmp.Or(m.err, m.missing),
	}
}

// Observe implements [journal.Member].
func (j journaled) Observe(now time.Time, all []ResourceStatus) {
	j.member.interrupted.Observe(now, all)
}

// RequestDiscovery implements [journal.Member].
func (j journaled) RequestDiscovery() { j.member.server.RequestDiscovery() }

// errHistory is returned by Reconfigure: feeds are made when their resources are.
var errHistory = errors.New("a history cannot be switched on or off while the fleet runs")

// Reconfigure changes options while the fleet runs. If it returns an error, nothing has
// changed. It returns before the change is complete:
//
//   - Resources that are not selected any more are no longer readable when it returns. Their
//     watches end. Those of all other resources go on.
//   - Resources that are selected now are mirrored after the next discovery, which begins at
//     once.
//   - A lower limit applies to objects that arrive later. With a higher limit, a resource whose
//     first list exceeded the previous one is read again at once. A resource that was complete
//     before it exceeded a limit is read again after the Retry of the previous limits.
//   - A smaller history is trimmed within seconds.
//   - Expendable resources that were dropped for want of memory are mirrored again.
func (f *Fleet) Reconfigure(t Tuning) error {
	next, err := newTuned(t)
	if err != nil {
		return err
	}
	if (next.History > 0) != f.KeepsHistory() {
		return errHistory
	}
	f.settings.pressure.Restore()
	f.settings.tuned.Store(next)
	f.retune()
	return nil
}

// retune makes all members use the changed settings. A member that joins later reads them when it
// is made.
func (f *Fleet) retune() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		m.retune()
	}
}

// Members returns the clusters, sorted by name.
func (f *Fleet) Members() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.members), func(a, b *Member) int { return cmp.Compare(a.Name(), b.Name()) })
}

// Len returns the number of clusters.
func (f *Fleet) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.members)
}

// Member returns the cluster with a name. If several names of the directory lead to one
// cluster, it is mirrored once, under one of them, and found by all: see
// [Member.Aliases].
func (f *Fleet) Member(name string) (*Member, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.members[f.aliases.resolve(name)]
	return m, ok
}

// Has reports whether a member is in the fleet now, and has not been replaced by another one
// of its name.
func (f *Fleet) Has(m *Member) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[m.Name()] == m
}

// Known reports whether the directory has reported its clusters, and each of its sources has.
// Before that, a name that no member has may be the name of a cluster.
func (f *Fleet) Known() bool {
	return f.isAdmitted() && !slices.ContainsFunc(f.Sources(), func(s SourceState) bool { return !s.Reported })
}

// Sources returns the states of the sources of clusters, nil if the directory does not report
// them: see [Sources].
func (f *Fleet) Sources() []SourceState {
	if d, ok := f.directory.(Sources); ok {
		return d.Sources()
	}
	return nil
}

// resolve returns the name of the member that a name leads to.
func (f *Fleet) resolve(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aliases.resolve(name)
}

// feedLogs returns the logs of all feeds.
func (f *Fleet) feedLogs() []*fanout.Log[*wire.Object] {
	var all []*fanout.Log[*wire.Object]
	for _, m := range f.Members() {
		all = append(all, m.mirrors.FeedLogs()...)
	}
	return all
}

// isAdmitted reports whether the directory has reported its clusters.
func (f *Fleet) isAdmitted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.admitted
}
