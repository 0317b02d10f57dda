// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/admission"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

// server is the API server of a member, as the member's sources use it: the connection,
// the identity of its cluster, and the limits on lists.
type server struct {
	// name is the cluster's name in the fleet.
	name   string
	logger *slog.Logger
	// gate and throttle limit the lists of this server, fleetGate those of the fleet.
	gate, fleetGate *admission.Gate
	throttle        *admission.Throttle
	// account bounds the objects that are kept, and watching the rate of watch events.
	account  *account
	watching atomic.Pointer[admission.Throttle]
	// counters counts the work of all mirrors, and traffic the requests.
	counters *watershed.Counters
	traffic  kube.Traffic
	// discoveryDue has a token when discovery is due.
	discoveryDue chan struct{}
	known        identification
	// cluster is the connection, nil while its entry has an error. The member's mu is held
	// when it changes.
	cluster atomic.Pointer[kube.Cluster]
	// disturb makes the journal examine the member soon. replaced is called when another
	// cluster has taken the address. Both are set before the member runs.
	disturb, replaced func()
	// disproved is called with an error which shows that the last state must not be used. It is
	// set before the member runs.
	disproved func(error)
}

// newServer returns the server of a cluster, without a connection.
func newServer(name string, s *settings) *server {
	to := &server{
		name: name, logger: s.Logger.With("cluster", name),
		gate: admission.NewGate(s.Budget.Lists, clusterPatience), fleetGate: s.gate,
		throttle: admission.NewThrottle(s.Budget.BytesPerSecond, 0),
		account:  newAccount(name, s.limits(), &s.pressure), counters: watershed.NewCounters(),
		discoveryDue: make(chan struct{}, 1),
		disproved:    func(error) {},
	}
	to.limit(s.limits())
	return to
}

// limit sets the limits of the cluster.
func (s *server) limit(l Limits) {
	s.account.bound(l)
	s.watching.Store(admission.NewThrottle(l.WatchBytes, time.Second))
}

// requestDiscovery makes the member run discovery soon.
func (s *server) requestDiscovery() {
	select {
	case s.discoveryDue <- struct{}{}:
	default:
	}
}

// turn is the permission to list a state: a place in the server's gate and one in the
// fleet's.
type turn struct{ cluster, fleet *admission.Pass }

func (t *turn) leave() {
	t.fleet.Leave()
	t.cluster.Leave()
}

// takeTurn waits for a place in both gates. The server's is held during the wait for the
// fleet's, and released if the server has asked for a pause meanwhile.
func (s *server) takeTurn(ctx context.Context) (*turn, error) {
	for {
		cluster, err := s.gate.Enter(ctx)
		if err != nil {
			return nil, err
		}
		fleet, err := s.fleetGate.Enter(ctx)
		if err != nil {
			cluster.Leave()
			return nil, err
		}
		t := &turn{cluster, fleet}
		if !s.gate.IsShut() {
			cluster.Begin()
			fleet.Begin()
			return t, nil
		}
		t.leave()
	}
}

// refused ends the use of the last state if the server does not accept the credentials. A cluster
// that accepts them may still forbid single resources, so a 403 counts only while the UID is
// assumed.
func (s *server) refused(err error) {
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) && s.known.isAssumed() {
		s.disproved(err)
	}
}

// delayListsAfter delays all lists of the server if an error asks one of them to retry later.
func (s *server) delayListsAfter(err error) {
	s.refused(err)
	var e *reflector.Error
	if errors.As(err, &e) && e.Reason == reflector.Busy {
		s.gate.Shut(min(max(e.RetryAfter, time.Second), time.Minute))
	}
}

// recognize checks that a response came from the member's cluster. Most requests use a
// connection on which that has been confirmed.
func (s *server) recognize(ctx context.Context, a *arrival) error {
	conn := a.connection()
	if s.known.confirmed(conn) {
		return nil
	}
	return s.identify(ctx, s.cluster.Load(), conn)
}

// identify requests the identity of the cluster and compares it with the previous one. If
// it is another cluster, identify calls replaced and returns errAnotherCluster. It is
// called after discovery, and by the first reader of a new connection: the server at an
// address changes only between two connections.
func (s *server) identify(ctx context.Context, cluster *kube.Cluster, conn any) error {
	k := &s.known
	k.requesting.Lock()
	defer k.requesting.Unlock()
	if k.confirmed(conn) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	var a arrival
	uid, err := cluster.UID(a.traced(ctx))
	if err != nil {
		s.refused(err)
		return err
	}
	confirmed, err := k.answer(uid, a.connection(), func() bool { return s.cluster.Load() == cluster })
	if err != nil {
		err = fmt.Errorf("cluster %s: %w", s.name, err)
	}
	if err != nil && !errors.Is(err, errReconfigured) {
		s.disproved(err)
	}
	if errors.Is(err, errAnotherCluster) {
		s.logger.Warn("another cluster now has the address", "err", err)
		s.replaced()
	}
	if confirmed {
		s.logger.Info("the cluster answers, and is the one whose stored state was read")
		s.requestDiscovery() // discovery has failed
	}
	return err
}
