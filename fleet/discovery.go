// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/fleet/internal/laststate"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
)

const (
	// discoverEvery is the longest time between two discoveries, plus up to a quarter.
	discoverEvery = 10 * time.Minute
	// discoverRetry is the wait after a discovery that failed. It doubles with each
	// failure.
	discoverRetry = time.Second
	// discoverRetryMost is the longest wait after a failed discovery, before up to a half of it
	// is added at random.
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
var discoverAfter = []time.Duration{
	50 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, time.Second, 3 * time.Second,
	10 * time.Second,
}

// run discovers the cluster's resources, now and whenever they may have changed, and
// mirrors them until ctx ends.
func (m *Member) run(ctx context.Context) {
	defer m.server.CloseIdle()
	defer m.mirrors.Wait()
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
			m.prober.Probe(ctx, m.Cluster)
		}
		failed = err != nil
		lagging = min(2*lagging, discoverLagMost)
		if m.mirrors.Lags() {
			next = min(next, lagging)
		} else {
			lagging = discoverRetry
		}
		if m.prober.FoundProblem() {
			next = min(next, health.ProbeAgain)
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
	routes := m.names.Load().routes
	used := m.entry().Access
	at := slices.IndexFunc(routes, func(e Entry) bool { return e.Access == used })
	if len(routes) > 1 {
		e := routes[(at+1)%len(routes)]
		e.Name, e.Labels = m.Name(), m.Labels()
		m.use(e)
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
	served, err = m.mirrors.LimitServed(served, err)
	var unknown error
	if len(served) > 0 {
		// An error other than upstream.ErrAnotherCluster is returned again on the next connection.
		if unknown = m.awaitIdentity(timed, cluster); errors.Is(unknown, upstream.ErrAnotherCluster) {
			return unknown
		}
	}
	m.mirrors.WaitIfEmpty()
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.changed.Send()
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
	m.foundLocked(err)
	m.server.CloseFormer()
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
	if laststate.Disproves(err) {
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
	m.mirrors.WaitIfEmpty() // until then the requests of dropped mirrors can be refused, which removes the note
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
	m.mirrorLocked(ctx, last.Resources, nil)
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
	for end := time.Now().Add(identityGrace); undecided && err == nil && m.Identity().UID == "" &&
		time.Now().Before(end); {
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
func (m *Member) foundLocked(missing error) {
	m.missing, m.err = missing, nil
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

// mirrorLocked makes the mirrors match the served resources. Mirrors of resources that
// are missing from discovery stay as they are.
func (m *Member) mirrorLocked(ctx context.Context, served []kube.Resource, missing error) {
	left, err := m.mirrors.Update(ctx, m.settings.scopeOf(m.used), served, missing)
	m.missing = errors.Join(m.missing, left)
	if err != nil {
		m.err = err
	}
	m.changed.Send()
}

// retune applies changed settings to the member.
func (m *Member) retune() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server.SetLimits(m.settings.limits().upstream())
	m.mirrors.Retune()
	m.server.RequestDiscovery()
}
