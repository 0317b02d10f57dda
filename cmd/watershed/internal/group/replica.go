// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
)

const (
	// period is the time between two renewals, also after one that failed.
	period = 2 * time.Second
	// timeout limits one request.
	timeout = 4 * time.Second
	// validity is how long a Lease counts as held by its owner after the owner has sent the last
	// renewal that was acknowledged. It is shorter than expiry, so that a Lease ceases to be
	// held before others may take it.
	validity = 10 * time.Second
	// expiry is how long an observer must not have seen a Lease change until it has expired.
	expiry = 15 * time.Second
	// ahead is how far the bound is ahead of the time, and leastRoom how far it is ahead of the
	// bound that it replaces.
	ahead, leastRoom = time.Hour, 5 * time.Second
	// margin is how long a bound must have passed before its Lease is deleted.
	margin = 5 * time.Minute
)

// Peer is another live replica of the group, as its Lease describes it.
type Peer struct {
	// Holder is the random ID of its process.
	Holder string
	Slot   int
	// Address and Key are what its [Options] have, "" if it has none. Nothing proves that the address
	// and the key are its own, beyond the right to write the Lease.
	Address, Key string
	// Format is the format of the Lease. A replica with another one than [Format] cannot be
	// understood.
	Format int
}

// Name returns how the replica is called in texts: by its slot.
func (p *Peer) Name() string { return "slot " + strconv.Itoa(p.Slot) }

// Options configures a [Replica].
type Options struct {
	// Group is the name of the group, and Namespace the one of its Leases.
	Group, Namespace string
	// Cluster returns the connection to the cluster with the Leases, nil while there is none.
	Cluster func() *kube.Cluster
	// Address is where peers reach this process, and Key the SHA-256 of its public key in
	// hexadecimal digits. Default: none.
	Address, Key string
	// Logger receives a line when the Lease is taken, lost, and no longer or again renewed.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Replica is this process as one of the replicas of a group.
type Replica struct {
	Options
	holder string
	clock  clock
	// term is the present one, which has ended while this process has no slot.
	term atomic.Pointer[fleet.Term]
	// renewed is when the last acknowledged renewal was sent, on the clock's time since its base,
	// 0 if this process has no Lease.
	renewed atomic.Int64
	changed timer.Broadcast

	// The goroutine of Run uses the fields below.
	connection *kube.Cluster
	client     coordinationclient.LeaseInterface
	own        *coordinationv1.Lease // nil without a Lease
	// used are the slots that this process has had, and must not have again.
	used map[int]bool
	// seen has each Lease of the group by its name.
	seen   map[string]*observation
	failed bool // the log says that the Lease is not renewed

	// mu guards the fields below.
	mu      sync.Mutex
	peers   []Peer
	ignored []error // of the last list
	err     error   // of the last round
	since   time.Time
}

// observation is a Lease as this process has seen it.
type observation struct {
	entry
	lease *coordinationv1.Lease
	// since is when the Lease was first seen in this state, on the clock's time since its base.
	since time.Duration
}

// New returns a replica that has no Lease before [Replica.Run].
func New(opts Options) *Replica {
	opts.Logger = cmp.Or(opts.Logger, slog.Default()).With("group", opts.Group)
	r := &Replica{
		Options: opts, holder: rand.Text(), clock: clock{base: time.Now().Add(-1)}, used: map[int]bool{},
		seen: map[string]*observation{}, since: time.Now(), err: errNoLease,
	}
	none := fleet.NewTerm(0, 0, func() uint64 { return 0 })
	none.End()
	r.term.Store(none)
	return r
}

var errNoLease = errors.New("no Lease was taken yet")

// Holder returns the random ID of this process.
func (r *Replica) Holder() string { return r.holder }

// Term returns the present term, which has ended while this process has no slot.
func (r *Replica) Term() *fleet.Term { return r.term.Load() }

// Renewed reports whether this process holds its Lease for certain.
func (r *Replica) Renewed() bool {
	sent := r.renewed.Load()
	return sent != 0 && r.clock.elapsed()-time.Duration(sent) < validity
}

// Peers returns the live replicas other than this process, sorted by slot.
func (r *Replica) Peers() []Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.peers)
}

// Changed returns a channel that is closed when Peers changes. A caller that calls Changed
// before Peers misses no change.
func (r *Replica) Changed() <-chan struct{} { return r.changed.Wait() }

// now returns the time for versions in microseconds since 1970, 0 while the Lease is not renewed.
func (r *Replica) now() uint64 {
	if now, known := r.clock.now(); known && r.Renewed() {
		return uint64(now.UnixMicro())
	}
	return 0
}

// Run takes a Lease and renews it until ctx ends, and then releases it.
func (r *Replica) Run(ctx context.Context) error {
	for {
		err := r.round(ctx)
		if err != nil {
			r.publish() // peers expire while this process cannot see them
		}
		r.report(err)
		if timer.Sleep(ctx, period) != nil {
			r.release(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// report records the result of a round.
func (r *Replica) report(err error) {
	r.mu.Lock()
	if (err == nil) != (r.err == nil) {
		r.since = time.Now()
	}
	r.err = err
	r.mu.Unlock()
	switch renewed := r.Renewed(); {
	case !renewed && !r.failed && err != nil:
		r.Logger.Warn("the Lease is not renewed: versions of /fleet grow by one per change", "err", err)
		r.failed = true
	case renewed && r.failed:
		r.Logger.Info("the Lease is renewed again")
		r.failed = false
	}
}

// connect makes the client of the present connection.
func (r *Replica) connect() error {
	c := r.Cluster()
	if c == nil {
		return errors.New("the group cluster is not in the fleet")
	}
	if c == r.connection {
		return nil
	}
	config := c.Config()
	config.QPS, config.Timeout = -1, timeout
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, nil
	config.ContentType, config.AcceptContentTypes = "", ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{&r.clock, next} })
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("group cluster %s: %w", c.Name(), err)
	}
	r.connection, r.client = c, client.Leases(r.Namespace)
	return nil
}
