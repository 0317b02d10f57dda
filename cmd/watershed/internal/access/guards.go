// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/cmd/watershed/internal/authz"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// guards are the guards of the members, one for each.
type guards struct {
	fleet *fleet.Fleet
	opts  Options
	// crossing is that of the options, or the last one of [Control.Cross].
	crossing atomic.Pointer[Crossing]

	// mu guards the fields below. past has the counts of guards that are not used any more.
	mu      sync.Mutex
	members map[*fleet.Member]*guard
	past    Totals
	// closing are the guards that are being closed.
	closing sync.WaitGroup
}

func newGuards(f *fleet.Fleet, opts Options) *guards {
	g := &guards{fleet: f, opts: opts, members: map[*fleet.Member]*guard{}}
	g.crossing.Store(&opts.Crossing)
	return g
}

// of returns the guard of a member's current connection.
func (g *guards) of(m *fleet.Member) (*guard, error) {
	connection := m.Cluster()
	if connection == nil {
		return nil, unavailable(m)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.members[m]
	if at == nil || at.connection != connection {
		if at != nil {
			g.retire(at)
		}
		at = g.newGuard(m, connection)
		g.members[m] = at
	}
	return at, nil
}

func (g *guards) newGuard(m *fleet.Member, connection *kube.Cluster) *guard {
	next := &guard{
		member: m, connection: connection,
		authn:    authn.New(connection, &authn.Options{Logger: g.opts.Logger}),
		reviewer: authz.NewReviewer(connection, nil),
		self:     authz.NewSelfReviewer(connection, nil),
		policy:   newPolicyCopy(m),
	}
	if g.opts.Local != nil && g.opts.Local(m.Name()) {
		next.local = authz.NewLocal(next.policy.policy, next.reviewer, &authz.LocalOptions{
			Cluster: m.Name(), Fresh: next.policy.current, Logger: g.opts.Logger,
		})
	}
	return next
}

// retire closes a guard that is not used any more. It does not wait: requests that have the
// guard may still be deciding, and get a 503. The caller holds mu.
func (g *guards) retire(old *guard) {
	g.past.add(old)
	g.past.Reviews.Entries, g.past.Reviews.Bytes = 0, 0 // its cache is dropped
	g.closing.Go(old.close)
}

// tidy drops the guards of clusters that have left, and decisions that are too old.
func (g *guards) tidy() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for m, at := range g.members {
		if !g.fleet.Has(m) {
			delete(g.members, m)
			g.retire(at)
			continue
		}
		at.reviewer.Expire()
		at.self.Expire()
	}
}

// current reports whether a guard is that of its member now. If another has replaced it,
// the credentials of the connection have changed, and a retry gets a new decision.
func (g *guards) current(at *guard) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[at.member] == at && g.fleet.Has(at.member)
}

// known returns the guard of a member, nil if there was no request for it.
func (g *guards) known(m *fleet.Member) *guard {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[m]
}

// close closes all guards and waits for them.
func (g *guards) close() {
	g.mu.Lock()
	for m, at := range g.members {
		delete(g.members, m)
		g.retire(at)
	}
	g.mu.Unlock()
	g.closing.Wait()
}

// totals returns the counts of all guards, with those that are not used any more.
func (g *guards) totals() Totals {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := g.past
	for _, at := range g.members {
		sum.add(at)
	}
	return sum
}
