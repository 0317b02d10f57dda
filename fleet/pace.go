// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// Budget limits the load that initial lists and relists put on one API server.
// Watches are not limited.
type Budget struct {
	// Lists limits how many resources are listed at once. A list that has received
	// nothing for five seconds does not count. Default 4.
	Lists int
	// BytesPerSecond limits the rate of all these lists together. If it is set, states
	// are listed in pages, not streamed: a server ends a stream that is read too slowly.
	// Default: no limit.
	BytesPerSecond int64
}

const (
	// clusterPatience is how long a list may receive nothing before it stops counting
	// against [Budget.Lists]. A stalled list must not block the others.
	clusterPatience = 5 * time.Second
	// fleetPatience is the same limit for the fleet-wide gate. It is shorter, because a
	// slow server should delay only itself.
	fleetPatience = time.Second
	// fleetLists is how many resources are listed at once in the whole fleet, for each
	// processor: objects that have arrived and are not stored yet take some MB for each.
	fleetLists = 6
)

// gate admits a number of lists at a time, in the order of their arrival. A list that
// stalls stops counting. When it continues it counts again, and the next list is admitted
// only when there is room for both.
type gate struct {
	limit int
	// patience is how long a pass may be idle before it stops counting.
	patience time.Duration
	// until is when the gate opens again, in nanoseconds since 1970.
	until atomic.Int64

	// mu guards the fields below: how many passes count, how many of these have received
	// something, and the lists that wait, oldest first.
	mu      sync.Mutex
	active  int
	flowing int
	waiting []chan struct{}
}

func newGate(limit int, patience time.Duration) *gate {
	return &gate{limit: limit, patience: patience}
}

// busy reports whether any list receives objects. A list that waits for its server does
// not count: the server may never respond.
func (g *gate) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flowing > 0
}

// stats returns how many lists count, and how many wait.
func (g *gate) stats() (active, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active, len(g.waiting)
}

// shut closes the gate for a time to lists that have not been admitted.
func (g *gate) shut(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for old := g.until.Load(); old < until && !g.until.CompareAndSwap(old, until); old = g.until.Load() {
		continue
	}
}

// isShut reports whether the gate is closed for a time.
func (g *gate) isShut() bool { return time.Now().UnixNano() < g.until.Load() }

// enter waits for a place. The place counts until it is released: see [pass.begin].
func (g *gate) enter(ctx context.Context) (*pass, error) {
	for {
		if err := timer.Sleep(ctx, time.Until(time.Unix(0, g.until.Load()))); err != nil {
			return nil, err
		}
		if err := g.take(ctx); err != nil {
			return nil, err
		}
		if !g.isShut() {
			return &pass{gate: g, held: true}, nil
		}
		g.release(false) // the gate was shut during the wait
	}
}

// take waits until there is room for one more list.
func (g *gate) take(ctx context.Context) error {
	g.mu.Lock()
	if g.active < g.limit && len(g.waiting) == 0 {
		g.active++
		g.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	g.waiting = append(g.waiting, admitted)
	g.mu.Unlock()
	select {
	case <-admitted:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, admitted); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	} else {
		g.releaseLocked(false) // it was admitted meanwhile
	}
	return context.Cause(ctx)
}

func (g *gate) release(flowing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked(flowing)
}

// releaseLocked reduces the count by one, and admits waiting lists if there is room.
func (g *gate) releaseLocked(flowing bool) {
	g.active--
	if flowing {
		g.flowing--
	}
	for g.active < g.limit && len(g.waiting) > 0 {
		g.active++
		close(g.waiting[0])
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
	if len(g.waiting) == 0 {
		g.waiting = nil // its array has room for all lists of a start
	}
}

// flow counts a pass that has received something. A pass that had stalled counts as
// active again.
func (g *gate) flow(stalled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flowing++
	if stalled {
		g.active++
	}
}

// pass is a place in a gate. Its owner releases it with leave. It stops counting when
// nothing has arrived for too long.
type pass struct {
	gate *gate
	// beats counts the times that something arrived or was processed. idle is set while
	// the list waits for more.
	beats atomic.Uint64
	idle  atomic.Bool
	// flows is set from the first object until the list stalls or ends.
	flows atomic.Bool

	// mu guards the fields below. It is taken before the gate's. held is whether the pass
	// counts, and left whether it was released; timer is nil before begin.
	mu         sync.Mutex
	held, left bool
	seen       uint64
	timer      *time.Timer
}

// begin starts the timer: from now on the server has to send something. It is called only
// after the list has every pass that it needs, since waiting for another gate is not the
// server's fault.
func (p *pass) begin() {
	p.idle.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.gate.patience, p.check)
}

// check makes the pass stop counting if nothing has arrived since the last call.
func (p *pass) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held {
		return
	}
	beats := p.beats.Load()
	if p.idle.Load() && beats == p.seen {
		p.releaseLocked()
		return
	}
	p.seen = beats
	p.timer.Reset(p.gate.patience)
}

// received records that something has arrived and is being processed.
func (p *pass) received() {
	p.beats.Add(1)
	p.idle.Store(false)
	if !p.flows.Load() {
		p.flow()
	}
}

// flow marks the pass as one that receives something. If it had stalled, it counts again.
func (p *pass) flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left || p.flows.Load() {
		return
	}
	p.gate.flow(!p.held)
	p.flows.Store(true)
	if !p.held {
		p.held, p.seen = true, p.beats.Load()
		p.timer.Reset(p.gate.patience)
	}
}

// awaits records that the list waits for the server.
func (p *pass) awaits() {
	p.beats.Add(1) // the server's time starts again, however long the last object took
	p.idle.Store(true)
}

// leave releases the place.
func (p *pass) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.left = true
	p.releaseLocked()
}

func (p *pass) releaseLocked() {
	if p.held {
		p.held = false
		p.gate.release(p.flows.Swap(false))
	}
}

// throttle limits a reader to a number of bytes per second. All methods are safe for
// concurrent use, and do nothing on nil.
type throttle struct {
	perSecond int64
	// burst is for how long a reader that has read less may read as fast as it can.
	burst time.Duration

	// mu guards free, the time at which the bytes read so far are within the rate.
	mu   sync.Mutex
	free time.Time
}

// newThrottle returns nil if there is no limit.
func newThrottle(perSecond int64, burst time.Duration) *throttle {
	if perSecond <= 0 {
		return nil
	}
	return &throttle{perSecond: perSecond, burst: burst}
}

// read waits until n more bytes may be read.
func (t *throttle) read(ctx context.Context, n int) error {
	if t == nil {
		return nil
	}
	wait := t.pay(n)
	if wait < 10*time.Millisecond {
		return nil // too short: a later read waits for it
	}
	return timer.Sleep(ctx, wait)
}

// pay counts n bytes and returns how long to wait for them.
func (t *throttle) pay(n int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if least := now.Add(-t.burst); t.free.Before(least) {
		t.free = least
	}
	t.free = t.free.Add(time.Duration(float64(n) / float64(t.perSecond) * float64(time.Second)))
	return t.free.Sub(now)
}
