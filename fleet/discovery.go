// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet/history"
	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
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

// identityGrace is how long a cluster may have no identity before it counts as one that has
// none, and identityPoll the time between two requests for it.
const (
	identityGrace = 5 * time.Second
	identityPoll  = 250 * time.Millisecond
)

// discoverAfter are the waits before the discoveries that follow a change of a cluster's
// types. Discovery shows the change after an unknown delay.
var discoverAfter = []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}

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
			m.server.Disturb()
		}
		switch {
		case err != nil:
			m.fallBack(ctx, err)
			m.tryOtherCredentials(err)
			next = wait + rand.N(wait/2)
			wait = min(2*wait, discoverRetryMost)
		case failed:
			after = discoverAfter[1:] // a server that has just started may not serve all resources yet
			fallthrough
		default:
			wait = discoverRetry
			m.remember()
			m.succeedBefore()
			m.probe(ctx)
		}
		failed = err != nil
		lagging = min(2*lagging, discoverLagMost)
		if m.incomplete() {
			next = min(next, lagging)
		} else {
			lagging = discoverRetry
		}
		if m.isProbedSoon() {
			next = min(next, probeAgain)
		}
		if m.Replaces() {
			next = min(next, time.Second)
		}
		if len(after) > 0 {
			next, after = min(next, after[0]), after[1:]
		}
		if m.pause(ctx, next, last) {
			after = discoverAfter[1:]
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// pause waits until the next discovery, or until a change makes it due. It reports whether
// there was a change. Last is when the last discovery began.
func (m *Member) pause(ctx context.Context, next time.Duration, last time.Time) (changed bool) {
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-m.server.DiscoveryDue():
		// This may be the first of several changes.
		timer.Reset(max(discoverAfter[0], discoverApart-time.Since(last)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return true
	}
	return false
}

// tryOtherCredentials switches to the credentials of the next name of the cluster, if it has
// several, when the server refuses the current ones.
func (m *Member) tryOtherCredentials(refused error) {
	if !health.IsRefused(refused) {
		return
	}
	_, routes := m.names.get()
	used := m.entry().Access
	at := slices.IndexFunc(routes, func(e Entry) bool { return e.Access == used })
	if len(routes) > 1 {
		e := routes[(at+1)%len(routes)]
		e.Name, e.Labels = m.Name(), m.Labels()
		m.use(e)
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
	if cluster := m.server.Cluster(); cluster != nil {
		cluster.CloseIdleConnections()
	}
}

// resolve runs discovery, and starts and ends mirrors accordingly.
func (m *Member) resolve(ctx context.Context) error {
	cluster := m.Cluster()
	if cluster == nil {
		return errors.New("directory has no configuration for the cluster")
	}
	timed, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	served, err := m.recallDuring(ctx, func() ([]kube.Resource, error) { return cluster.Resources(timed) })
	served, err = m.limitServed(served, err)
	var unknown error
	if len(served) > 0 {
		// An error other than upstream.ErrAnotherCluster is returned again on the next connection.
		if unknown = m.awaitIdentity(timed, cluster); errors.Is(unknown, upstream.ErrAnotherCluster) {
			return unknown
		}
	}
	m.awaitDropped()
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.changed.send()
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // the member has left: no mirror may start any more
	case len(served) == 0:
		m.err = cmp.Or(err, errors.New("the cluster serves nothing"))
		return m.err
	case unknown != nil && m.awaitsIdentityLocked():
		m.err = unknown
		return unknown
	}
	m.foundLocked(served, err)
	if m.former != nil {
		m.former.CloseIdleConnections()
	}
	m.mirrorLocked(ctx, served, err)
	return nil
}

// recallAfter is how long the first discovery may take before the last state becomes readable. A
// network that drops all packets delays the error by a minute.
const recallAfter = 5 * time.Second

// recallDuring calls discover, and makes the last state readable if that takes long.
func (m *Member) recallDuring(ctx context.Context, discover func() ([]kube.Resource, error)) ([]kube.Resource, error) {
	if !m.Unconfirmed() {
		return discover()
	}
	discovering, stop := context.WithCancel(ctx)
	defer stop()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if timer.Sleep(discovering, recallAfter) == nil {
			m.recall(ctx)
		}
	})
	served, err := discover()
	stop()
	waiting.Wait()
	return served, err
}

// fallBack handles the error of a discovery: it makes the last state readable, or ends that.
func (m *Member) fallBack(ctx context.Context, err error) {
	if isDisproof(err) {
		m.disprove(err)
	} else if m.Unconfirmed() {
		m.recall(ctx)
	}
}

// recall makes the last state of the cluster readable, if it was stored and can be trusted. Its
// mirrors load it from their files as after any restart, and go on from there when the cluster
// has answered with the UID that they assume.
func (m *Member) recall(ctx context.Context) {
	if m.Discovered() {
		return
	}
	m.awaitDropped() // until then their requests can be refused, which removes the note
	last := m.lastKnown()
	if last == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil || m.connection != last.Connection {
		return
	}
	m.server.Known.Assume(last.UID)
	m.logger.Warn("cluster does not answer, and its last state can be read", "uid", last.UID)
	m.listLocked(last.Resources)
	m.mirrorLocked(ctx, last.Resources, nil)
}

// awaitDropped waits until the mirrors of a last state that was dropped have ended: the files of
// a resource can be open once only.
func (m *Member) awaitDropped() {
	m.mu.Lock()
	dropped := len(m.mirrors) == 0
	m.mu.Unlock()
	if dropped {
		m.runs.Wait()
	}
}

// awaitIdentity requests the identity of the cluster. Before the first mirrors of a cluster with
// files it waits for a while if there is none: a server that has just started creates the
// namespace that identifies its cluster after it answers the first requests, and whether the
// cluster is stored is decided once.
func (m *Member) awaitIdentity(ctx context.Context, cluster *kube.Cluster) error {
	err := m.server.Identify(ctx, cluster)
	m.mu.Lock()
	undecided := m.settings.Disk != nil && m.discovered.IsZero()
	m.mu.Unlock()
	for end := time.Now().Add(identityGrace); undecided && err == nil && m.Identity().UID == "" && time.Now().Before(end); {
		if err = timer.Sleep(ctx, identityPoll); err == nil {
			err = m.server.Identify(ctx, cluster)
		}
	}
	return err
}

// awaitsIdentityLocked reports whether no mirror may start before the identity of the cluster is
// known: it decides which files are those of the cluster. Without them everything would be
// listed, and the past could not be read.
func (m *Member) awaitsIdentityLocked() bool {
	return m.settings.Disk != nil && m.discovered.IsZero() && m.Identity().UID == ""
}

// foundLocked records the result of a discovery that found resources.
func (m *Member) foundLocked(served []kube.Resource, missing error) {
	m.missing, m.err = missing, nil
	m.listLocked(served)
	if !m.discovered.IsZero() {
		return
	}
	m.discovered = time.Now()
	if m.settings.Disk != nil {
		if _, m.unstored = m.server.Known.Stored(); m.unstored != nil {
			m.logger.Warn("objects of the cluster are not stored", "err", m.unstored)
		}
	}
}

// listLocked records the resources of the cluster.
func (m *Member) listLocked(served []kube.Resource) {
	m.listed = served
	m.served = make(map[schema.GroupResource]struct{}, len(served))
	for _, r := range served {
		m.served[r.GroupResource()] = struct{}{}
	}
}

// mirrorLocked makes the mirrors match the served resources. Mirrors of resources that
// are missing from discovery stay as they are.
func (m *Member) mirrorLocked(ctx context.Context, served []kube.Resource, missing error) {
	wanted, hidden := m.settings.selection().Wanted(m.settings.scopeOf(m.used), served)
	m.missing = errors.Join(m.missing, m.limitWantedLocked(wanted))
	defer m.changed.send()
	for at, x := range m.mirrors {
		if _, ok := wanted[at]; !ok && !unknown(at, missing) && !m.definedLocked(at) {
			m.logger.Info("resource is no longer served", "resource", at.String())
			m.endLocked(at, x)
			m.removals.Add(at)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(wanted), selection.First) {
		r := wanted[at]
		if x := m.next[at]; x != nil && !x.same(r, m.asJSON[at], !hidden[at]) {
			delete(m.next, at)
			x.stop(false)
		}
		now := m.mirrors[at]
		if now != nil && now.same(r, m.asJSON[at], !hidden[at]) || m.next[at] != nil {
			continue
		}
		x, err := m.newMirrorLocked(r, !hidden[at])
		if err != nil {
			m.err = err
			continue
		}
		if now == nil {
			m.removals.Forget(at)
			m.mirrors[at] = x
		} else {
			if r.Version != now.resource.Version {
				m.logger.Info("resource is served in another way, mirroring it anew", "resource", at.String(), "version", r.Version, "was", now.resource.Version)
			}
			m.next[at] = x
		}
		m.startLocked(ctx, x)
	}
}

// retune applies changed settings to the member.
func (m *Member) retune() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server.SetLimits(m.settings.limits().upstream())
	chosen := m.settings.selection()
	for at, x := range m.mirrors {
		switch is := x.informer.Status(); {
		case x.collection != nil && !chosen.Has(at):
			m.logger.Info("resource is no longer selected", "resource", at.String())
			m.endLocked(at, x)
		case !is.Synced && errors.Is(is.Reflector.Err, ErrLimit):
			m.endLocked(at, x) // the next discovery starts it again
		}
	}
	m.server.RequestDiscovery()
}

// servedPerMirror is how many resources a cluster may serve for each that it may have
// mirrored: a resource can have several versions, and not every one can be watched.
const servedPerMirror = 8

// limitServed returns as many of the served resources as a cluster may have, and the error
// about those that discovery could not read and those that are left out.
func (m *Member) limitServed(served []kube.Resource, missing error) ([]kube.Resource, error) {
	most := m.settings.limits().Resources
	if most < 0 || len(served)/servedPerMirror < most {
		return served, missing
	}
	most *= servedPerMirror
	return slices.Clone(served[:most]), errors.Join(missing, fmt.Errorf("%w: the cluster serves %d resources, and all after the first %d are ignored", ErrLimit, len(served), most))
}

// limitWantedLocked removes resources from those to mirror if they are too many, and
// returns an error in that case. Those that are mirrored already stay, then come built-in
// ones.
func (m *Member) limitWantedLocked(wanted map[schema.GroupResource]kube.Resource) error {
	most, n := m.settings.limits().Resources, len(wanted)
	if most < 0 || n <= most {
		return nil
	}
	class := func(at schema.GroupResource) int {
		_, builtin := kube.KindOf(wanted[at].GroupVersionResource)
		switch {
		case m.mirrors[at] != nil:
			return 0
		case builtin:
			return 1
		}
		return 2
	}
	all := slices.SortedFunc(maps.Keys(wanted), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(class(a), class(b)), selection.First(a, b))
	})
	for _, at := range all[most:] {
		delete(wanted, at)
	}
	return fmt.Errorf("%w: the cluster has %d resources to mirror, and %d are mirrored: %s is one of the others", ErrLimit, n, most, all[most])
}

// newMirrorLocked returns a mirror of a resource. Only selected resources can be read.
func (m *Member) newMirrorLocked(r kube.Resource, selected bool) (x *mirror, err error) {
	at := r.GroupResource()
	query := kube.Query{Resource: r.GroupVersionResource, MetadataOnly: true}
	if selected {
		query = selection.Query(m.settings.scopeOf(m.used), r)
	}
	query.JSON = m.asJSON[at]
	unknownFields := func(o *wire.Object) { m.useJSON(at, o) }
	// The connection is not that of the discovery, which may have been replaced.
	x, err = newMirror(m.server, m.settings, r, query, unknownFields, func(s state, changes []store.Change[*wire.Object], whole bool) {
		x.source.Complete()
		m.applied(x, s, changes)
		x.feed.Apply(s, changes, whole)
		x.reached(s, whole)
		if m.settings.Trace != nil {
			stored(m.settings.Trace, x, changes)
		}
	})
	if err != nil || !selected {
		return x, err
	}
	x.useJSON = func() error { return m.continueJSON(x) }
	if m.settings.history() > 0 {
		x.feed = history.NewWriter(&x.resource, x.informer.Connection, m.settings.Window)
		x.feed.Succeed(m.feedBefore(at))
	}
	x.collection = m.catalog.Collection(at)
	x.collection.Introduce(x.cluster, x.informer)
	return x, nil
}

// definedLocked reports whether a resource has a definition. Then it is served, or will
// be again: a server that has just started may leave it out of its discovery.
func (m *Member) definedLocked(at schema.GroupResource) bool {
	x := m.mirrors[selection.Definitions]
	if x == nil {
		return false
	}
	_, ok := x.informer.Get(at.String())
	return ok
}

// incomplete reports whether to run discovery again soon because it lags.
func (m *Member) incomplete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.mirrors[selection.Definitions]
	return x != nil && m.lagsLocked(x.informer.Snapshot())
}

// unknown reports whether discovery could not determine whether a resource is served.
func unknown(r schema.GroupResource, missing error) bool {
	return slices.ContainsFunc(health.Split(missing), func(err error) bool {
		var g *kube.GroupError
		return !errors.As(err, &g) || g.GroupVersion.Group == r.Group
	})
}

// startLocked runs a mirror until ctx ends or the mirror is stopped.
func (m *Member) startLocked(ctx context.Context, x *mirror) {
	ctx, x.end = context.WithCancel(ctx)
	m.runs.Go(func() { x.run(ctx, m.logger) })
}
