// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/replica"
	"github.com/watershed-project/watershed/wire"
)

const (
	// watchLife is how long a watch may last at most, whatever its client asks for.
	watchLife = time.Hour
	// checkGrace is how long a watch goes on while its cluster does not decide.
	checkGrace = 2 * time.Minute
	// checks is how many rights are checked at once.
	checks = 16
	// credentialChecks is in how many rounds of checks the credential of a watch is checked
	// once.
	credentialChecks = 2
	// policyDelay is how long after a change of RBAC the watches of the cluster are checked,
	// so that a burst of changes is one check.
	policyDelay = 250 * time.Millisecond
	// policySettled is when they are checked once more: the copy may have received the
	// change before each of the cluster's API servers has.
	policySettled = 3 * time.Second
)

// watches has the watches that run, by their rights: those with the same right are checked
// once. A watch costs about 100 bytes here, and a right about 800.
type watches struct {
	guards *guards
	opts   Options
	// changed has the guards whose watches are to be checked.
	changed chan *guard

	// mu guards the fields below. checking has the guards whose rights are being checked because
	// it is time.
	mu       sync.Mutex
	rights   map[right]*rightState
	checking map[*guard]bool
}

func newWatches(g *guards, opts Options) *watches {
	return &watches{
		guards:   g,
		opts:     opts,
		changed:  make(chan *guard, 1024),
		rights:   map[right]*rightState{},
		checking: map[*guard]bool{},
	}
}

// right is what a watch needs.
type right struct {
	guard      *guard // nil below /fleet
	caller     [sha256.Size]byte
	credential [sha256.Size]byte
	attributes replica.Attributes
}

// rightState is the watches with one right. The mu of watches guards it.
type rightState struct {
	// ends ends, by end, when the right is lost.
	ends context.Context
	end  context.CancelFunc
	// count is how many watches there are.
	count int
	// still reports whether the caller still has the right.
	still func(context.Context) (bool, error)
	// valid returns an error if the credential is no longer accepted.
	valid func(context.Context) error
	// failing is since when checks have failed, zero if the last one has not.
	failing time.Time
	rounds  int
	// life ends the watches when their time is over.
	life *time.Timer
}

// add records a watch until its response is complete. The context ends when the caller has
// lost the right.
func (w *watches) add(
	r *http.Request, call *Call, g *guard, a replica.Attributes, still func(context.Context) (bool, error),
) context.Context {
	who := call.caller
	key := right{guard: g, caller: who.identity(), credential: credentialOf(r), attributes: a}
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.rights[key]
	if state == nil {
		state = &rightState{still: still, valid: w.validity(r, who)}
		state.ends, state.end = context.WithCancel(context.Background())
		life := watchLife
		if !who.Expires.IsZero() {
			life = min(life, time.Until(who.Expires))
		}
		state.life = time.AfterFunc(life, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.endLocked(key, state)
		})
		w.rights[key] = state
	}
	state.count++
	call.end = append(call.end, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if state.count--; state.count == 0 {
			w.endLocked(key, state)
		}
	})
	return state.ends
}

// endLocked ends the watches with a right, unless they have ended. The next request for a
// watch is decided anew.
func (w *watches) endLocked(key right, state *rightState) {
	if w.rights[key] != state {
		return
	}
	delete(w.rights, key)
	state.life.Stop()
	state.end()
}

// validity returns a function that checks the credential of a request again, and what it
// needs to impersonate.
func (w *watches) validity(r *http.Request, who *caller) func(context.Context) error {
	presented := who.presenter()
	return func(ctx context.Context) error {
		switch {
		case presented.owner:
			return nil
		case presented.at == nil:
			return w.opts.Crossing.OIDC.Reauthenticate(ctx, r, &presented.Identity)
		}
		at, err := w.guards.of(presented.at)
		if err != nil {
			return err
		}
		if err := at.authn.Reauthenticate(ctx, r, &presented.Identity); err != nil {
			return err
		}
		for _, a := range who.impersonation {
			d, err := at.decideNow(ctx, presented, a)
			if err != nil {
				return err
			}
			if !d.Allowed {
				return errUnauthorized()
			}
		}
		return nil
	}
}

// run checks the rights of watches until ctx ends: of all on a timer, and of those of one
// cluster when its RBAC changes.
func (w *watches) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, kind := range policyKinds {
		running.Go(func() { w.follow(ctx, kind.GroupResource) })
	}
	all := time.NewTicker(w.opts.Recheck)
	defer all.Stop()
	tidy := time.NewTicker(time.Second)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tidy.C:
			w.guards.tidy()
		case <-all.C:
			w.recheckAll(ctx, &running)
		case at := <-w.changed:
			// Other clusters change in the meantime, so goroutines wait. There are at most two
			// for each guard, see follow.
			running.Go(func() {
				_ = timer.Sleep(ctx, policyDelay)
				at.pending.Store(false)
				w.recheckAt(ctx, at)
			})
			if at.again.CompareAndSwap(false, true) {
				running.Go(func() {
					_ = timer.Sleep(ctx, policySettled)
					at.again.Store(false)
					w.recheckAt(ctx, at)
				})
			}
		}
	}
}

// follow checks the watches of a cluster again when one of its RBAC objects changes, until
// ctx or the fleet's run ends. If the objects are not mirrored, the timer remains.
func (w *watches) follow(ctx context.Context, resource schema.GroupResource) {
	for change := range fleet.OfResource[*wire.Object](w.guards.fleet, resource).Watch(ctx) {
		m, ok := w.guards.fleet.Member(change.Key.Cluster)
		if !ok || change.Initial {
			continue
		}
		if at := w.guards.known(m); at != nil && at.pending.CompareAndSwap(false, true) {
			select {
			case w.changed <- at:
			case <-ctx.Done():
				return
			}
		}
	}
}

// recheckAll starts to check all rights. Each cluster has limits of its own, so that a cluster
// which does not answer delays no other. Such a cluster is not asked again until it has answered.
func (w *watches) recheckAll(ctx context.Context, running *sync.WaitGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.rights {
		at := key.guard
		if w.checking[at] {
			continue
		}
		w.checking[at] = true
		running.Go(func() {
			w.recheck(ctx, func(r right) bool { return r.guard == at }, true)
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.checking, at)
		})
	}
}

// recheckAt forgets the decisions of a cluster whose RBAC has changed, and checks its watches.
func (w *watches) recheckAt(ctx context.Context, at *guard) {
	at.flush()
	w.recheck(ctx, func(r right) bool { return r.guard == at || r.guard == nil }, false)
}

// recheck checks the rights that match.
func (w *watches) recheck(ctx context.Context, match func(right) bool, timed bool) {
	type job struct {
		key   right
		state *rightState
		whole bool
	}
	var jobs []job
	w.mu.Lock()
	for key, state := range w.rights {
		if match(key) {
			if timed {
				state.rounds++
			}
			jobs = append(jobs, job{key, state, timed && state.rounds%credentialChecks == 0})
		}
	}
	w.mu.Unlock()
	workqueue.ParallelizeUntil(context.Background(), checks, len(jobs), func(i int) {
		w.check(ctx, jobs[i].key, jobs[i].state, jobs[i].whole)
	})
}

// check checks one right, and ends its watches if it is lost.
func (w *watches) check(ctx context.Context, key right, state *rightState, credential bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kept := key.guard == nil || w.guards.current(key.guard)
	var err error
	if kept && credential {
		if err = state.valid(ctx); apierrors.IsUnauthorized(err) {
			kept, err = false, nil
		}
	}
	if kept && err == nil {
		kept, err = state.still(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		state.failing = time.Time{}
	case ctx.Err() == context.Canceled:
		return // the program ends
	case state.failing.IsZero():
		state.failing = time.Now()
	case time.Since(state.failing) > checkGrace:
		kept = false
	}
	if !kept {
		w.endLocked(key, state)
	}
}
