// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

const (
	// fleetTimeout is how long a member may take to decide about a request below /fleet.
	fleetTimeout = time.Second
	// fleetReviews is how many members are asked at once for one request.
	fleetReviews = 64
)

// visible is the decisions of the members about a request.
type visible struct {
	// members allow the request, and denied do not.
	members, denied map[*fleet.Member]bool
	// unavailable is how many members did not decide in time.
	unavailable int
}

// still reports whether no member that allowed a request denies it now, which is a review of
// these members. The error says that some of them did not decide.
func (v visible) still(now visible) (bool, error) {
	if len(now.denied) > 0 {
		return false, nil
	}
	if now.unavailable > 0 {
		return true, fmt.Errorf("%d clusters did not decide", now.unavailable)
	}
	return true, nil
}

// present returns the members of a set that are still in the fleet.
func (g *guards) present(members map[*fleet.Member]bool) []*fleet.Member {
	return slices.DeleteFunc(slices.Collect(maps.Keys(members)), func(m *fleet.Member) bool { return !g.fleet.Has(m) })
}

// review asks members whether they allow a request. A member where the caller has no identity
// denies it.
func (g *guards) review(ctx context.Context, who *caller, a replica.Attributes, members []*fleet.Member) visible {
	ctx, cancel := context.WithTimeout(ctx, fleetTimeout)
	defer cancel()
	var (
		mu sync.Mutex
		v  = visible{members: map[*fleet.Member]bool{}, denied: map[*fleet.Member]bool{}}
	)
	// Every member counts, also if there is no time left to ask it.
	workqueue.ParallelizeUntil(context.Background(), fleetReviews, len(members), func(i int) {
		m, allowed, err := members[i], false, error(nil)
		if as := g.crossing.Load().cross(who, m); as != nil {
			allowed, err = g.reviewAt(ctx, m, as, a)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			v.unavailable++
		case allowed:
			v.members[m] = true
		default:
			v.denied[m] = true
		}
	})
	return v
}

// reviewAt asks one member.
func (g *guards) reviewAt(ctx context.Context, m *fleet.Member, who *caller, a replica.Attributes) (bool, error) {
	if m.Replaces() {
		// The fleet still has the objects of the cluster that had this name before.
		return false, unavailable(m)
	}
	at, err := g.of(m)
	if err != nil {
		return false, err
	}
	d, err := at.decide(ctx, who, a)
	if err == nil && d.Allowed && (a.Verb == "list" || a.Verb == "watch") {
		// A watch continues a list, so both read the same members.
		a.Verb = map[string]string{"list": "watch", "watch": "list"}[a.Verb]
		d, err = at.decide(ctx, who, a)
	}
	return d.Allowed, err
}
