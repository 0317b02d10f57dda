// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verification

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/peer"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// perRound is how many resources a round of [Replicas.Run] compares, chosen at random. Differences
	// that it has found before are compared in each round.
	perRound = 20
	// rest is how many times as long as a comparison Run waits after it, and leastRest and mostRest limit that.
	rest, leastRest, mostRest = 200, time.Second, 5 * time.Minute
	// confirmation is after how long a difference is compared again before it is a problem: a replica
	// may just have noticed that etcd was restored.
	confirmation = 30 * time.Second
	// mostLag is after how long it is a problem that another replica has not reached a version. A bookmark
	// comes at least once a minute.
	mostLag = 3 * time.Minute
	// reportAge is how long a report counts. One comes every five seconds.
	reportAge = 30 * time.Second
)

// Replicas compares the copies of this replica with the copies of the other replicas of its group.
type Replicas struct {
	fleet    *fleet.Fleet
	exchange *peer.Exchange
	logger   *slog.Logger

	equal, different, failed atomic.Uint64

	mu sync.Mutex
	// found are the differences that a second comparison has confirmed: why, and since when.
	found map[difference]finding
	// lags has how far each copy of each other replica has come, without a resource.
	lags map[difference]lag
}

// difference identifies a copy of another replica.
type difference struct {
	cluster  string
	resource schema.GroupResource
	other    peer.Peer
}

// finding is a difference that is a problem.
type finding struct {
	message string
	since   time.Time
}

// lag means that another replica had not reached a version, which this one had since a time, when it last
// reported.
type lag struct {
	version         uint64
	since, reported time.Time
}

// late returns for how long the other replica has not reached the version, 0 if it does not report any more.
func (l lag) late() time.Duration {
	if time.Since(l.reported) > reportAge {
		return 0
	}
	return l.reported.Sub(l.since)
}

// NewReplicas returns the comparison with the other replicas of an exchange.
func NewReplicas(f *fleet.Fleet, e *peer.Exchange, logger *slog.Logger) *Replicas {
	return &Replicas{
		fleet: f, exchange: e, logger: logger, found: map[difference]finding{}, lags: map[difference]lag{},
	}
}

// Reached records which version of a cluster another replica has reached, and which one this replica has.
func (r *Replicas) Reached(other peer.Peer, cluster string, version, own uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, now := difference{cluster: cluster, other: other}, time.Now()
	is := r.lags[d]
	if is.reported = now; version >= is.version {
		is.version, is.since = own, now
	}
	r.lags[d] = is
}

// compare compares one pair with another replica.
func (r *Replicas) compare(ctx context.Context, p pair, other *peer.Peer) Result {
	result := p.result()
	result.Replica = other.Name()
	if p.unread != nil {
		return result
	}
	began := time.Now()
	err := p.compareVersions(ctx, func(ctx context.Context, question []byte) ([]byte, error) {
		return r.exchange.Versions(ctx, *other, question)
	}, &result)
	result.Seconds = time.Since(began).Seconds()
	switch {
	case err != nil:
		result.Error = err.Error()
		r.failed.Add(1)
	case result.Diverged() > 0:
		r.different.Add(1)
	default:
		r.equal.Add(1)
	}
	return result
}

// compareAll compares pairs with all other replicas.
func (r *Replicas) compareAll(ctx context.Context, plan []pair) (all []Result, err error) {
	if len(plan) == 0 {
		return nil, nil
	}
	others := r.exchange.States()
	if len(others) == 0 {
		return nil, apierrors.NewBadRequest("there is no other replica in the group now")
	}
	for _, p := range plan {
		for i := range others {
			all = append(all, r.compare(ctx, p, &others[i].Peer))
		}
	}
	return all, nil
}

// Run compares resources with the other replicas, one after the other and slowly, until ctx ends.
func (r *Replicas) Run(ctx context.Context) error {
	for timer.Sleep(ctx, leastRest) == nil {
		for _, d := range r.round() {
			if timer.Sleep(ctx, min(max(leastRest, rest*r.visit(ctx, d, confirmation)), mostRest)) != nil {
				break
			}
		}
	}
	return nil
}

// visit compares a copy with that of another replica, and again after a pause if they differ. It returns how
// long a comparison took.
func (r *Replicas) visit(ctx context.Context, d difference, pause time.Duration) time.Duration {
	var result Result
	m, ok := r.fleet.Member(d.cluster)
	if ok && slices.Contains(r.connected(), d.other) { // else the difference is forgotten
		p := pair{member: m, resource: d.resource}
		result = r.compare(ctx, p, &d.other)
		if result.Diverged() > 0 && timer.Sleep(ctx, pause) == nil {
			result = r.compare(ctx, p, &d.other)
		}
	}
	r.resolve(d, &result)
	return time.Duration(result.Seconds * float64(time.Second))
}

// round returns what a round compares.
func (r *Replicas) round() []difference {
	others := r.connected()
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.found))
	maps.DeleteFunc(r.lags, func(_ difference, l lag) bool { return time.Since(l.reported) > reportAge })
	r.mu.Unlock()
	members := r.fleet.Members()
	for range perRound {
		if len(others) == 0 || len(members) == 0 {
			break
		}
		m := members[rand.IntN(len(members))]
		if pairs := pairsOf(m); len(pairs) > 0 && pairs[0].unread == nil {
			p := pairs[rand.IntN(len(pairs))]
			all = append(all, difference{m.Name(), p.resource, others[rand.IntN(len(others))]})
		}
	}
	return all
}

// connected returns the other replicas that can be asked.
func (r *Replicas) connected() (others []peer.Peer) {
	for _, s := range r.exchange.States() {
		if s.Err == nil {
			others = append(others, s.Peer)
		}
	}
	return others
}

// resolve records or forgets a difference. Without a result, what was found before stays.
func (r *Replicas) resolve(d difference, result *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.found[d]
	switch {
	case result.Error != "":
	case result.Diverged() == 0:
		delete(r.found, d)
	default:
		is := finding{fmt.Sprintf("%s has other objects in %s of cluster %s at version %s: %v", result.Replica,
			result.Resource, result.Cluster, result.Version, result.Divergences), time.Now()}
		if known {
			is.since = was.since
		} else {
			r.logger.Error("copy differs from that of another replica", "difference", is.message)
		}
		r.found[d] = is
	}
}

// Problems returns one problem with a reason if copies differ, or if another replica does not reach the
// versions that this one has.
func (r *Replicas) Problems(reason string) []fleet.Problem {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.found))
	for d, is := range r.lags {
		if late := is.late(); late > mostLag {
			message := fmt.Sprintf("%s says that cluster %s is live, and has not reached version %d, which this "+
				"replica had %s before", d.other.Name(), d.cluster, is.version, late.Round(time.Second))
			all = append(all, finding{message, is.since})
		}
	}
	r.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	first := slices.MinFunc(all, func(a, b finding) int { return a.since.Compare(b.since) })
	if len(all) > 1 {
		first.message += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	return []fleet.Problem{{Reason: reason, Since: first.since, Message: first.message}}
}

// ReplicasStats are counts since the start.
type ReplicasStats struct {
	// Equal and Different count comparisons of copies, and Failed those without a result.
	Equal, Different, Failed uint64
	// Lag is how long a version that this replica has had was not reached by another one.
	Lag time.Duration
}

// Stats returns the counts.
func (r *Replicas) Stats() ReplicasStats {
	s := ReplicasStats{Equal: r.equal.Load(), Different: r.different.Load(), Failed: r.failed.Load()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, is := range r.lags {
		s.Lag = max(s.Lag, is.late())
	}
	return s
}
