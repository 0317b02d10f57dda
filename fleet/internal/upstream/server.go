// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

const (
	// ClusterPatience is how long a list may receive nothing before it stops counting
	// against [Options.Lists]. A stalled list must not block the others.
	ClusterPatience = 5 * time.Second
	// FleetPatience is the same limit for the fleet-wide gate. It is shorter, because a
	// slow server should delay only itself.
	FleetPatience = time.Second
)

// Options configure a [Server].
type Options struct {
	// Name is the cluster's name in the fleet, and Logger the logger of the fleet.
	Name   string
	Logger *slog.Logger
	// Lists limits how many resources of the server are listed at once, and BytesPerSecond the
	// rate of these lists together, without a limit if it is 0.
	Lists          int
	BytesPerSecond int64
	// Gate limits the lists of the fleet.
	Gate *admission.Gate
	// Memory is the memory of the fleet.
	Memory *quota.Process
	// Limits are those of the cluster.
	Limits Limits
}

// Limits bound what a server can make its readers keep and receive.
type Limits struct {
	quota.Limits
	// WatchBytes is how many bytes of watch events are read in a second.
	WatchBytes int64
}

// Server is the API server of a member, as the member's sources use it: the connection,
// the identity of its cluster, and the limits on lists. All methods are safe for concurrent use.
type Server struct {
	// Disturb is called when the status of the cluster may have changed. Replaced is called when
	// another cluster has taken the address. Disproved is called with an error which shows that
	// the last state must not be used. All are set before the server is used.
	Disturb, Replaced func()
	Disproved         func(error)
	// Known is how the cluster is recognized.
	Known Identification
	// Counters counts the work of all mirrors, and Traffic the requests.
	Counters *engine.Counters
	Traffic  kube.Traffic

	// name is the cluster's name in the fleet.
	name   string
	logger *slog.Logger
	// gate and throttle limit the lists of this server, fleetGate those of the fleet.
	gate, fleetGate *admission.Gate
	throttle        *admission.Throttle
	// account bounds the objects that are kept, and watching the rate of watch events.
	account  *quota.Account
	watching atomic.Pointer[admission.Throttle]
	// discoveryDue has a token when discovery is due.
	discoveryDue chan struct{}
	// cluster is the connection, nil before the first call of Connect. former is the previous one.
	// Its watches move to the new one, and then it can be closed.
	cluster, former atomic.Pointer[kube.Cluster]
}

// NewServer returns the server of a cluster, without a connection.
func NewServer(opts Options) *Server {
	to := &Server{
		Disturb: func() {}, Replaced: func() {}, Disproved: func(error) {}, Counters: engine.NewCounters(),
		name: opts.Name, logger: opts.Logger.With("cluster", opts.Name),
		gate: admission.NewGate(opts.Lists, ClusterPatience), fleetGate: opts.Gate,
		throttle:     admission.NewThrottle(opts.BytesPerSecond, 0),
		account:      quota.NewAccount(opts.Name, opts.Limits.Limits, opts.Memory),
		discoveryDue: make(chan struct{}, 1),
	}
	to.SetLimits(opts.Limits)
	return to
}

// Name returns the cluster's name in the fleet.
func (s *Server) Name() string { return s.name }

// Logger returns the logger of the cluster.
func (s *Server) Logger() *slog.Logger { return s.logger }

// SetLimits sets the limits of the cluster.
func (s *Server) SetLimits(l Limits) {
	s.account.SetLimits(l.Limits)
	s.watching.Store(admission.NewThrottle(l.WatchBytes, time.Second))
}

// Account returns the account of the cluster's objects.
func (s *Server) Account() *quota.Account { return s.account }

// Cluster returns the connection, nil before the first call of [Server.Connect].
func (s *Server) Cluster() *kube.Cluster { return s.cluster.Load() }

// Connect makes requests use another connection, and returns the previous one, nil if there was
// none. The sources continue with their own until [Source.Use] is called.
func (s *Server) Connect(to *kube.Cluster) (old *kube.Cluster) {
	if old = s.cluster.Swap(to); old != nil {
		s.former.Store(old)
	}
	return old
}

// CloseFormer closes idle connections of the previous configuration.
func (s *Server) CloseFormer() {
	if former := s.former.Load(); former != nil {
		former.CloseIdleConnections()
	}
}

// CloseIdle closes connections that are not needed. When no source runs any more, that is all of
// them.
func (s *Server) CloseIdle() {
	s.CloseFormer()
	if cluster := s.Cluster(); cluster != nil {
		cluster.CloseIdleConnections()
	}
}

// DiscoveryDue returns the channel that has a token when discovery is due.
func (s *Server) DiscoveryDue() <-chan struct{} { return s.discoveryDue }

// RequestDiscovery makes the member run discovery soon.
func (s *Server) RequestDiscovery() {
	select {
	case s.discoveryDue <- struct{}{}:
	default:
	}
}

// Turn is the permission to list a state: a place in the server's gate and one in the
// fleet's.
type Turn struct{ cluster, fleet *admission.Pass }

// Leave ends the turn.
func (t *Turn) Leave() {
	t.fleet.Leave()
	t.cluster.Leave()
}

// received records that the list has received something.
func (t *Turn) received() {
	t.fleet.Received()
	t.cluster.Received()
}

// awaits records that the list waits for its server.
func (t *Turn) awaits() {
	t.fleet.Awaits()
	t.cluster.Awaits()
}

// TakeTurn waits for a place in both gates. The server's is held during the wait for the
// fleet's, and released if the server has asked for a pause meanwhile.
func (s *Server) TakeTurn(ctx context.Context) (*Turn, error) {
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
		t := &Turn{cluster, fleet}
		if !s.gate.IsShut() {
			cluster.Begin()
			fleet.Begin()
			return t, nil
		}
		t.Leave()
	}
}

// refused ends the use of the last state if the server does not accept the credentials. A cluster
// that accepts them may still forbid single resources, so a 403 counts only while the UID is
// assumed.
func (s *Server) refused(err error) {
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) && s.Known.IsAssumed() {
		s.Disproved(err)
	}
}

// DelayListsAfter delays all lists of the server if an error asks one of them to retry later. It
// also calls Disproved if the server does not accept the credentials.
func (s *Server) DelayListsAfter(err error) {
	s.refused(err)
	var e *reflector.Error
	if errors.As(err, &e) && e.Reason == reflector.Busy {
		s.gate.Shut(min(max(e.RetryAfter, time.Second), time.Minute))
	}
}

// recognize checks that a response came from the member's cluster. Most requests use a
// connection on which that has been confirmed.
func (s *Server) recognize(ctx context.Context, a *arrival) error {
	conn := a.connection()
	if s.Known.confirmed(conn) {
		return nil
	}
	return s.identify(ctx, s.Cluster(), conn)
}

// Identify requests the identity of a cluster on one of its connections, see identify. It is called
// after discovery.
func (s *Server) Identify(ctx context.Context, cluster *kube.Cluster) error {
	return s.identify(ctx, cluster, nil)
}

// identify requests the identity of the cluster and compares it with the previous one. If
// it is another cluster, identify calls Replaced and returns ErrAnotherCluster. It is
// called by the first reader of a new connection: the server at an address changes only
// between two connections.
func (s *Server) identify(ctx context.Context, cluster *kube.Cluster, conn any) error {
	k := &s.Known
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
		s.Disproved(err)
	}
	if errors.Is(err, ErrAnotherCluster) {
		s.logger.Warn("another cluster now has the address", "err", err)
		s.Replaced()
	}
	if confirmed {
		s.logger.Info("the cluster answers, and is the one whose stored state was read")
		s.RequestDiscovery() // discovery has failed
	}
	return err
}
