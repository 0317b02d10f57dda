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
	// Lists is how many resources are read at once. A list that has received nothing
	// for five seconds does not count. Default 4.
	Lists int
	// BytesPerSecond bounds what is read of them all. With it states are listed in
	// pages, not streamed: a server ends a stream that is read too slowly. Default:
	// no bound.
	BytesPerSecond int64
}

const (
	// clusterPatience is how long a list may receive nothing before it stops counting
	// against [Budget.Lists]. A stalled list must not block the others.
	clusterPatience = 5 * time.Second
	// fleetPatience is the same limit for the fleet-wide gate. It is shorter, because a
	// slow server should delay only itself.
	fleetPatience = time.Second
	// fleetLists is how many resources are read at once in the whole fleet, for each
	// processor: objects that have arrived and are not stored yet take some MB for each.
	fleetLists = 6
)

// gate admits a number of lists at a time, in the order in which they came. A list
// that stalls stops counting; when it goes on it counts again, and the next one is
// admitted only when there is room for both.
type gate struct {
	limit int
	// patience is how long a pass may be idle before it stops counting.
	patience time.Duration
	// until is when the gate opens again, in nanoseconds since 1970.
	until atomic.Int64

	// mu guards what follows: how many passes count, how many of these have received
	// something, and the lists that wait, oldest first.
	mu      sync.Mutex
	active  int
	flowing int
	waiting []chan struct{}
}

func newGate(limit int, patience time.Duration) *gate {
	return &gate{limit: limit, patience: patience}
}

// busy reports whether anything arrives. A list that waits for its server, which may
// never answer, is not work to be done.
func (g *gate) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flowing > 0
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

// enter waits for a place. It counts until it is given back: see [pass.begin].
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
		g.release(false) // shut while this one waited
	}
}

// take waits until there is room for one more.
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
		g.releaseLocked(false) // admitted meanwhile
	}
	return context.Cause(ctx)
}

func (g *gate) release(flowing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked(flowing)
}

// releaseLocked takes one off the count, and admits the next if there is room.
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
}

// flow counts a pass that has received something, and counts it as one more if it had
// stalled before.
func (g *gate) flow(stalled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flowing++
	if stalled {
		g.active++
	}
}

// pass is a place in a gate, which its owner gives back with leave. It stops counting
// while nothing arrives for too long.
type pass struct {
	gate *gate
	// beats counts the times that something arrived or was dealt with; idle is set
	// while more is awaited.
	beats atomic.Uint64
	idle  atomic.Bool
	// flows is set from the first object on until the list stalls or ends.
	flows atomic.Bool

	// mu guards what follows. It is taken before the gate's. held is whether the pass
	// counts, left whether it was given back; timer is nil before begin.
	mu         sync.Mutex
	held, left bool
	seen       uint64
	timer      *time.Timer
}

// begin starts the patience: from now on the server has to send something. It is not
// called before the list has every pass that it needs, since waiting for another gate
// is not the server's fault.
func (p *pass) begin() {
	p.idle.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.gate.patience, p.look)
}

// look stops counting the pass if nothing has arrived since the last look.
func (p *pass) look() {
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

// came notes that something has arrived and is being dealt with.
func (p *pass) came() {
	p.beats.Add(1)
	p.idle.Store(false)
	if !p.flows.Load() {
		p.flow()
	}
}

// flow makes the pass one that receives something, and counts it again if it had
// stalled.
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

// awaits notes that it is the server's turn.
func (p *pass) awaits() {
	p.beats.Add(1) // the server has all of its time, however long the last object took
	p.idle.Store(true)
}

// leave gives the place back.
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

// throttle slows a reader down to a number of bytes per second. All methods are safe
// for concurrent use, and do nothing on nil.
type throttle struct {
	perSecond int64

	// mu guards free, the time at which the bytes read so far are within the rate.
	mu   sync.Mutex
	free time.Time
}

// newThrottle returns nil if there is no bound.
func newThrottle(perSecond int64) *throttle {
	if perSecond <= 0 {
		return nil
	}
	return &throttle{perSecond: perSecond}
}

// read waits until n more bytes may be read.
func (t *throttle) read(ctx context.Context, n int) error {
	if t == nil {
		return nil
	}
	wait := t.pay(n)
	if wait < 10*time.Millisecond {
		return nil // the next read makes up for so little
	}
	return timer.Sleep(ctx, wait)
}

// pay counts n bytes and returns how long to wait for them.
func (t *throttle) pay(n int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.free.Before(now) {
		t.free = now
	}
	t.free = t.free.Add(time.Duration(float64(n) / float64(t.perSecond) * float64(time.Second)))
	return t.free.Sub(now)
}
