// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// The resources whose objects define which types a cluster serves.
var (
	definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	apiServices = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
)

const (
	// discoverEvery is the longest time between two discoveries, plus up to a quarter.
	discoverEvery = 10 * time.Minute
	// discoverRetry is the wait after a discovery that failed. It doubles with each
	// failure.
	discoverRetry = time.Second
	// discoverRetryMost is the longest wait after a discovery that failed.
	discoverRetryMost = 30 * time.Second
	// discoverLagMost is the longest time between two discoveries while a type is
	// defined that the cluster does not serve.
	discoverLagMost = time.Minute
	// discoverApart is the least time between two discoveries, however much changes.
	discoverApart = 300 * time.Millisecond
)

// discoverAfter are the waits before the discoveries that follow a change of a cluster's
// types. Discovery shows the change after an unknown delay.
var discoverAfter = []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}

// Member is one cluster of a fleet. All methods are safe for concurrent use.
type Member struct {
	name     string
	fleet    *Fleet
	logger   *slog.Logger
	gate     *gate
	throttle *throttle
	// poked has a token when discovery is due.
	poked chan struct{}
	// end ends the run.
	end   context.CancelFunc
	known identification

	// mu guards the fields below.
	mu      sync.Mutex
	cluster *kube.Cluster // nil while its entry has an error
	used    Entry         // the entry that cluster was made from
	access  string
	host    string
	// former is the previous connection. Its watches move to the new one, and then it can
	// be closed.
	former *kube.Cluster
	// unlisted is the directory's current error: it has no usable configuration for the
	// cluster. A connection that was made before stays in use.
	unlisted error
	err      error     // of the last discovery
	since    time.Time // when the member began
	gone     time.Time
	// before is the member of the same name that this one replaces when it has synced. It
	// is nil if there was none, or it has been replaced.
	before *Member
	// discovered is when discovery first succeeded.
	discovered time.Time
	// mirrors are those that run, or are about to. next are those that are to replace one
	// of them.
	mirrors, next map[schema.GroupResource]*mirror
	// asJSON has the resources with objects that have fields which their Go types do not
	// have. They are mirrored as JSON.
	asJSON map[schema.GroupResource]bool
	// listed has the resources of the last discovery, served has their names, and missing
	// is the error about the parts that it could not read.
	listed  []kube.Resource
	served  map[schema.GroupResource]struct{}
	missing error
	runs    sync.WaitGroup
}

func newMember(f *Fleet, name string) *Member {
	return &Member{
		name: name, fleet: f, logger: f.opts.Logger.With("cluster", name),
		gate: newGate(f.opts.Budget.Lists, clusterPatience), throttle: newThrottle(f.opts.Budget.BytesPerSecond),
		poked: make(chan struct{}, 1), since: time.Now(),
		mirrors: map[schema.GroupResource]*mirror{}, next: map[schema.GroupResource]*mirror{}, asJSON: map[schema.GroupResource]bool{},
	}
}

// Name returns the cluster's name in the fleet.
func (m *Member) Name() string { return m.name }

// Cluster returns the connection to the cluster, or nil if its directory has not provided
// a configuration yet. The connection changes when the credentials change.
func (m *Member) Cluster() *kube.Cluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cluster
}

// poke makes the member run discovery.
func (m *Member) poke() {
	select {
	case m.poked <- struct{}{}:
	default:
	}
}

// use switches to an entry of the directory, or records its error.
func (m *Member) use(e Entry) {
	cluster, err := (*kube.Cluster)(nil), e.Err
	if err == nil {
		cluster, err = kube.FromConfig(e.Config, &kube.Options{Name: m.name})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlisted = nil
	if err != nil {
		m.unlisted = fmt.Errorf("directory: %w", err)
		return
	}
	old := m.cluster
	m.cluster, m.used, m.access, m.host = cluster, e, e.Access, e.Config.Host
	m.known.reach(e.Config)
	for _, x := range slices.Concat(slices.Collect(maps.Values(m.mirrors)), slices.Collect(maps.Values(m.next))) {
		if err := x.source.use(cluster); err != nil {
			m.err = err
		}
	}
	if old != nil {
		m.logger.Info("credentials changed")
		m.former = old
	}
	m.poke()
}

// run discovers the cluster's resources, now and whenever they may have changed, and
// mirrors them until ctx ends.
func (m *Member) run(ctx context.Context) {
	defer m.closeIdle()
	defer m.runs.Wait()
	wait, after := discoverRetry, discoverAfter[len(discoverAfter):]
	failed, lagging := false, discoverRetry
	for {
		next := discoverEvery + rand.N(discoverEvery/4)
		last := time.Now()
		err := m.resolve(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || failed {
			m.fleet.journal.disturb(m)
		}
		switch {
		case err != nil:
			m.detour(err)
			next = wait + rand.N(wait/2)
			wait = min(2*wait, discoverRetryMost)
		case failed:
			after = discoverAfter[1:] // a server that has just started may not serve all resources yet
			fallthrough
		default:
			wait = discoverRetry
			m.succeedBefore()
		}
		failed = err != nil
		lagging = min(2*lagging, discoverLagMost)
		if m.incomplete() {
			next = min(next, lagging)
		} else {
			lagging = discoverRetry
		}
		if m.replaces() {
			next = min(next, time.Second)
		}
		if len(after) > 0 {
			next, after = min(next, after[0]), after[1:]
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.poked:
			// This may be the first of several changes.
			timer.Reset(max(discoverAfter[0], discoverApart-time.Since(last)))
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			after = discoverAfter[1:]
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// closeIdle closes connections that are not needed. At the end of run that is all of
// them.
func (m *Member) closeIdle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.former != nil {
		m.former.CloseIdleConnections()
	}
	if m.cluster != nil {
		m.cluster.CloseIdleConnections()
	}
}

// resolve runs discovery, and starts and ends mirrors accordingly.
func (m *Member) resolve(ctx context.Context) error {
	cluster := m.Cluster()
	if cluster == nil {
		return errors.New("the directory does not say how to reach it")
	}
	asked, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	served, err := cluster.Resources(asked)
	if len(served) > 0 {
		if err := m.identify(asked, cluster, nil); errors.Is(err, errAnotherCluster) {
			return err
		} // any other error is returned again on the next connection
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // the member has left: no mirror may start any more
	}
	if len(served) == 0 {
		if err == nil {
			err = errors.New("the cluster serves nothing")
		}
		m.err = err
		return err
	}
	m.foundLocked(served, err)
	if m.former != nil {
		m.former.CloseIdleConnections()
	}
	m.mirrorLocked(ctx, served, err)
	return nil
}

// foundLocked records the result of a discovery that found resources.
func (m *Member) foundLocked(served []kube.Resource, missing error) {
	m.missing, m.err = missing, nil
	m.listed = served
	m.served = make(map[schema.GroupResource]struct{}, len(served))
	for _, r := range served {
		m.served[r.GroupResource()] = struct{}{}
	}
	if m.discovered.IsZero() {
		m.discovered = time.Now()
	}
}

// mirrorLocked makes the mirrors match the served resources. Mirrors of resources that
// are missing from discovery stay as they are.
func (m *Member) mirrorLocked(ctx context.Context, served []kube.Resource, missing error) {
	scope := m.fleet.scopeOf(m.used)
	served = slices.DeleteFunc(slices.Clone(served), func(r kube.Resource) bool { return !scope.has(r) })
	wanted := m.fleet.selection.resolve(served)
	hidden := map[schema.GroupResource]bool{}
	for _, r := range served {
		at := r.GroupResource()
		if _, ok := wanted[at]; !ok && watchable(r) && (at == definitions || at == apiServices) {
			wanted[at], hidden[at] = r, true
		}
	}
	for at, x := range m.mirrors {
		if _, ok := wanted[at]; !ok && !unknown(at, missing) && !m.definedLocked(at) {
			m.logger.Info("resource is gone", "resource", at.String())
			m.endLocked(at, x)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(wanted), first) {
		r := wanted[at]
		if x := m.next[at]; x != nil && !x.same(r, m.asJSON[at]) {
			delete(m.next, at)
			m.stop(x, false)
		}
		now := m.mirrors[at]
		if now != nil && now.same(r, m.asJSON[at]) || m.next[at] != nil {
			continue
		}
		x, err := newMirror(m, m.cluster, r, !hidden[at]) // not the connection of the discovery: it may have been replaced
		if err != nil {
			m.err = err
			continue
		}
		if now == nil {
			m.mirrors[at] = x
		} else {
			if r.Version != now.resource.Version {
				m.logger.Info("resource is served otherwise", "resource", at.String(), "version", r.Version, "was", now.resource.Version)
			}
			m.next[at] = x
		}
		m.startLocked(ctx, x)
	}
}

// definedLocked reports whether a resource has a definition. Then it is served, or will
// be again: a server that has just started may leave it out of its discovery.
func (m *Member) definedLocked(at schema.GroupResource) bool {
	x := m.mirrors[definitions]
	if x == nil {
		return false
	}
	_, ok := x.informer.Get(at.String())
	return ok
}

// lags reports whether discovery lacks some of the types that are defined: it is behind,
// or one of them cannot be served.
func (m *Member) lags(defined state) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lagsLocked(defined)
}

func (m *Member) lagsLocked(defined state) bool {
	for key, o := range defined.Raw() {
		if _, ok := m.served[schema.ParseGroupResource(key)]; !ok && o.GroupVersionKind().Group == definitions.Group {
			return true
		}
	}
	return false
}

// incomplete reports whether to run discovery again soon because it lags.
func (m *Member) incomplete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.mirrors[definitions]
	return x != nil && m.lagsLocked(x.informer.Snapshot())
}

// first orders resources: those that define types come before the others.
func first(a, b schema.GroupResource) int {
	rank := func(r schema.GroupResource) string {
		if r == definitions || r == apiServices {
			return ""
		}
		return r.String()
	}
	return slices.Compare([]string{rank(a), a.String()}, []string{rank(b), b.String()})
}

// unknown reports whether discovery could not determine whether a resource is served.
func unknown(r schema.GroupResource, missing error) bool {
	return slices.ContainsFunc(split(missing), func(err error) bool {
		var g *kube.GroupError
		return !errors.As(err, &g) || g.GroupVersion.Group == r.Group
	})
}

// split returns the errors that err joins.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, split(one)...)
	}
	return all
}

func (m *Member) startLocked(ctx context.Context, x *mirror) {
	ctx, x.end = context.WithCancel(ctx)
	m.runs.Go(func() { x.run(ctx, m.logger) })
}

// endLocked ends a mirror without a successor, and the mirror that was to replace it.
func (m *Member) endLocked(at schema.GroupResource, x *mirror) {
	delete(m.mirrors, at)
	m.stop(x, false)
	if next := m.next[at]; next != nil {
		delete(m.next, at)
		m.stop(next, false)
	}
}

// stop ends a mirror. It does not wait for the mirror to return.
func (m *Member) stop(x *mirror, replaced bool) {
	if x.collection != nil {
		x.collection.forget(x.cluster, x.informer, replaced)
	}
	x.feed.close()
	x.end()
}

// applied handles a batch that a mirror has read. The mirror's informer waits for it.
func (m *Member) applied(x *mirror, s state, changes []store.Change[*wire.Object]) {
	at := x.resource.GroupResource()
	if (at == definitions || at == apiServices) && (len(changes) > 0 || !x.seen && m.lags(s)) {
		m.poke()
	}
	x.seen = true
	switch {
	case x.collection == nil:
	case x.joined:
		x.collection.applied(x.informer, s, changes)
	default:
		x.joined = true
		m.join(x, s)
	}
}

// join makes the state of a mirror that has synced the cluster's, if it is still wanted,
// and ends the mirror that it replaces.
func (m *Member) join(x *mirror, s state) {
	at := x.resource.GroupResource()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mirrors[at] != x && m.next[at] != x {
		return // it was stopped
	}
	x.collection.applied(x.informer, s, nil)
	if m.next[at] == x {
		m.stop(m.mirrors[at], true)
		delete(m.next, at)
		m.mirrors[at] = x
	}
}

// relisted records that the directory again lists the entry that is in use.
func (m *Member) relisted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlisted = nil
}

// way returns how the cluster is reached. Both are "" if the directory has not reported
// that.
func (m *Member) way() (access, host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.access, m.host
}
