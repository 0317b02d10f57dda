// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/kube"
)

// Status returns the member's status, at any time. It costs some 500 ns for each
// resource.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statusLocked(m.mirrors.Statuses())
}

func (m *Member) statusLocked(resources []ResourceStatus) Status {
	s := Status{
		Since: m.since, Err: cmp.Or(m.unlisted, m.err, m.missing), Identity: m.Identity(), Unstored: m.unstored,
		Scope: m.settings.scopeOf(m.used), JSON: m.mirrors.JSON(),
	}
	m.observeLocked(&s)
	givenUp := health.Count(&s, resources)
	s.State = m.stateLocked(&s, givenUp)
	switch s.State {
	case Gone:
		s.Since = m.gone
	case Stale:
		health.BlameFirst(&s)
	}
	if m.unlisted != nil && !errors.Is(s.Err, m.unlisted) {
		s.Err = fmt.Errorf("%w; %w", m.unlisted, s.Err)
	}
	return s
}

// stateLocked returns the state of a member whose resources were counted.
func (m *Member) stateLocked(s *Status, givenUp int) State {
	switch {
	case !m.gone.IsZero():
		return Gone
	case m.discovered.IsZero():
		return Connecting
	case s.Synced+givenUp < s.Resources:
		return Syncing
	case len(s.Failing) > 0:
		return Stale
	}
	return Live
}

// observeLocked sets the parts of a status that do not determine the state.
func (m *Member) observeLocked(s *Status) {
	now := time.Now()
	s.Joined, s.Probe, s.Shadowed = m.since, m.probed, slices.Clone(m.shadowed)
	if now.Sub(m.since) < health.RemovalAge {
		s.Predecessor = m.predecessor
	}
	s.Removals = m.mirrors.Removals(now)
	s.Interruptions, s.Interrupted = m.interrupted.Recent(now)
}

// Resources returns the resources that are mirrored, sorted by name.
func (m *Member) Resources() []ResourceStatus { return m.mirrors.Statuses() }

// Stale returns the group versions that discovery could not read because the server
// behind them does not respond.
func (m *Member) Stale() []schema.GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []schema.GroupVersion
	for _, err := range health.Split(m.missing) {
		var group *kube.GroupError
		if errors.As(err, &group) {
			all = append(all, group.GroupVersion)
		}
	}
	return all
}

// Discovered reports whether the resources of the cluster are known: discovery has succeeded, or
// they are those of its last state. Before that, the absence of a resource means nothing.
func (m *Member) Discovered() bool {
	return m.mirrors.Listed() != nil
}

const (
	// probeAgain is the least time between two probes, and the wait before the next discovery
	// while a probe found a problem.
	probeAgain = time.Minute
	// probeTimeout limits a probe. Changes of types are not discovered meanwhile.
	probeTimeout = 10 * time.Second
)

// probe records what a request to the cluster shows, at most once a minute. Errors are left
// to discovery, which has just succeeded, except that a server that does not answer is slow.
func (m *Member) probe(ctx context.Context) {
	m.mu.Lock()
	last, cluster := m.probed, m.Cluster()
	m.mu.Unlock()
	if cluster == nil || time.Since(last.At) < probeAgain {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	p, err := NewProbe(ctx, cluster)
	switch {
	case err != nil && ctx.Err() != nil:
		p = last
		p.Took, p.At = time.Since(began), time.Now()
	case err != nil && p.At.IsZero():
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Cluster() == cluster {
		m.probed = p
	}
}

// isProbedSoon reports whether the last probe found a problem, so that the next one should
// come soon to see its end.
func (m *Member) isProbedSoon() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.probed.IsSkewed() || m.probed.IsSlow()
}
