// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
)

// Format is the format of the requests between replicas, and of their Leases. A replica with another one
// counts as unreachable.
const Format = group.Format

const (
	// acknowledgedBy is how long a response waits until its note is acknowledged.
	acknowledgedBy = 50 * time.Millisecond
	// noteTimeout is how long a note may take that nobody waits for any more.
	noteTimeout = time.Second
	// beat is how often a replica shows that it runs, and silence is how long after the last time it
	// counts as unreachable.
	beat    = 500 * time.Millisecond
	silence = 3 * time.Second
	// reportEvery is how often the report of a replica is requested.
	reportEvery = 5 * time.Second
	// versionsTimeout is how long a replica may take to list the versions of a resource.
	versionsTimeout = 30 * time.Second
	// maxPeers is how many other replicas a group may have.
	maxPeers = 16
	// maxNotes is how many notes are on their way to a replica, and how many requests of a replica are
	// answered, at once.
	maxNotes = 64
)

var (
	// ErrBusy is returned by [Options.Receive] if notes take all the memory that they may, and by
	// [Options.Versions] if it is used already.
	ErrBusy = errors.New("busy")
	// errNotListed means that a replica is not in the list of the group.
	errNotListed = errors.New("the replica is not in the list of the group")
)

// Peer is another replica in the list of the group.
type Peer = group.Peer

// Options are what an [Exchange] needs. All of them are required.
type Options struct {
	// Key is the key pair of this process, and Holder its ID in the list of the group.
	Key    *Key
	Holder string
	// Peers returns the replicas whose Leases are valid. It is called for every connection. Changed
	// returns a channel that is closed when they change.
	Peers   func() []Peer
	Changed func() <-chan struct{}
	// Renewed reports whether this replica could renew its Lease. If not, it may not know others.
	Renewed func() bool
	// MaxNote is the largest note in bytes. Receive records a note of another replica.
	MaxNote int
	Receive func(note []byte) error
	// Report returns the report of this replica in JSON.
	Report func() ([]byte, error)
	// Reported is called with each report of another replica, which it must not keep.
	Reported func(p Peer, report []byte)
	// Versions answers the question of another replica about the versions in a copy, see
	// [Exchange.Versions].
	Versions func(ctx context.Context, question []byte) ([]byte, error)
	Logger   *slog.Logger
}

// Exchange exchanges notes and reports with the other replicas of a group. All methods are safe for
// concurrent use.
type Exchange struct {
	opts     Options
	listener net.Listener
	own      tls.Certificate
	// running are the goroutines of the server, of remotes and of notes.
	running sync.WaitGroup

	acknowledged, unacknowledged, accepted, refused atomic.Uint64

	mu sync.Mutex
	// remotes are the other replicas. known means that the list has been read, and ended that Run has
	// ended.
	remotes map[Peer]*remote
	known   bool
	ended   bool
}

// New returns an exchange that listens for other replicas, and that [Exchange.Run] runs.
func New(l net.Listener, opts Options) (*Exchange, error) {
	own, err := opts.Key.Certificate(opts.Holder)
	if err != nil {
		return nil, err
	}
	return &Exchange{opts: opts, listener: l, own: own, remotes: map[Peer]*remote{}}, nil
}

// Run answers other replicas and follows the list of the group until ctx ends, and closes the
// listener.
func (e *Exchange) Run(ctx context.Context) error {
	server := e.server()
	ended := make(chan error, 1)
	e.running.Go(func() { ended <- server.ServeTLS(e.listener, "", "") })
	err := e.follow(ctx, ended)
	_ = server.Close()
	e.mu.Lock()
	e.ended = true
	all := slices.Collect(maps.Values(e.remotes))
	e.mu.Unlock()
	for _, r := range all {
		r.stop()
	}
	e.running.Wait()
	return err
}

// follow follows the list of the group until ctx or the server ends.
func (e *Exchange) follow(ctx context.Context, server <-chan error) error {
	for {
		changed := e.opts.Changed()
		e.update(ctx, e.opts.Peers())
		select {
		case <-ctx.Done():
			return nil
		case err := <-server:
			return fmt.Errorf("port for other replicas: %w", err)
		case <-changed:
		}
	}
}

// update makes remotes of the replicas in the list, and stops those that have left.
func (e *Exchange) update(ctx context.Context, peers []Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = true
	left := maps.Clone(e.remotes)
	for _, p := range peers {
		if p.Holder == e.opts.Holder {
			continue
		}
		excess := len(e.remotes)-len(left) >= maxPeers
		if is := left[p]; is != nil && is.excess == excess {
			delete(left, p)
			continue
		}
		if former := e.remotes[p]; former != nil {
			former.stop()
			delete(left, p)
		}
		r := newRemote(ctx, e, p, excess)
		e.remotes[p] = r
		e.running.Go(r.run)
	}
	for p, r := range left {
		r.stop()
		delete(e.remotes, p)
	}
}

// all returns the other replicas by their slots.
func (e *Exchange) all() []*remote {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.remotes), func(a, b *remote) int { return a.Slot - b.Slot })
}

// Send gives a note to all other replicas, and reports whether all of them have accepted it within
// 50 ms. It is false also if this replica may not know all others, because it cannot renew its Lease.
// Notes that take longer are still delivered, if possible.
func (e *Exchange) Send(ctx context.Context, note []byte) (acknowledged bool) {
	defer func() {
		if acknowledged {
			e.acknowledged.Add(1)
		} else {
			e.unacknowledged.Add(1)
		}
	}()
	remotes := e.all()
	results := make(chan bool, len(remotes))
	for _, r := range remotes {
		e.start(func() { results <- r.give(note) }, func() { results <- false })
	}
	acknowledged = e.opts.Renewed()
	wait := time.NewTimer(acknowledgedBy)
	defer wait.Stop()
	for range remotes {
		select {
		case given := <-results:
			acknowledged = acknowledged && given
		case <-wait.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return acknowledged
}

// Versions asks a replica about the versions in one of its copies, and returns its answer.
func (e *Exchange) Versions(ctx context.Context, p Peer, question []byte) ([]byte, error) {
	e.mu.Lock()
	r := e.remotes[p]
	e.mu.Unlock()
	switch {
	case r == nil:
		return nil, errNotListed
	case r.useless != nil:
		return nil, r.useless
	}
	return r.ask(ctx, http.MethodPost, versionsPath, question, versionsTimeout, maxVersions)
}

// start calls f in a goroutine that Run waits for, or otherwise if Run has ended.
func (e *Exchange) start(f, otherwise func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		otherwise()
		return
	}
	e.running.Go(f)
}

// Complete reports whether every other replica has shown lately that it knows this one, so that it
// sends its notes, and whether this replica knows all others, because it could renew its Lease.
func (e *Exchange) Complete() bool {
	if !e.opts.Renewed() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.remotes {
		if !r.isRecent(&r.heard) {
			return false
		}
	}
	return e.known
}

// State is the state of the connection to another replica.
type State struct {
	Peer
	// Err is why the replica is unreachable, nil if both can send to each other. Since is when it
	// was last reachable, or was found.
	Err   error
	Since time.Time
}

// States returns the states of all other replicas, by their slots.
func (e *Exchange) States() []State {
	remotes := e.all()
	all := make([]State, len(remotes))
	for i, r := range remotes {
		all[i] = r.state()
	}
	return all
}

// Stats are counts since the start.
type Stats struct {
	// Acknowledged and Unacknowledged count the notes of this replica.
	Acknowledged, Unacknowledged uint64
	// Accepted and Refused count the notes of other replicas.
	Accepted, Refused uint64
	// Connected and Unreachable are the numbers of other replicas now.
	Connected, Unreachable int
}

// Stats returns the counts.
func (e *Exchange) Stats() Stats {
	s := Stats{
		Acknowledged: e.acknowledged.Load(), Unacknowledged: e.unacknowledged.Load(), Accepted: e.accepted.Load(),
		Refused: e.refused.Load(),
	}
	for _, r := range e.all() {
		if r.state().Err == nil {
			s.Connected++
		} else {
			s.Unreachable++
		}
	}
	return s
}
