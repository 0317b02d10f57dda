// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package admission

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// Gate admits a number of lists at a time, in the order of their arrival. A list that
// stalls stops counting. When it continues it counts again, and the next list is admitted
// only when there is room for both.
type Gate struct {
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

// NewGate returns a gate that admits a number of lists. "patience" is how long a list may receive
// nothing before it stops counting.
func NewGate(limit int, patience time.Duration) *Gate {
	return &Gate{limit: limit, patience: patience}
}

// IsBusy reports whether any list receives objects. A list that waits for its server does
// not count: the server may never respond.
func (g *Gate) IsBusy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flowing > 0
}

// Stats returns how many lists count, and how many wait.
func (g *Gate) Stats() (active, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active, len(g.waiting)
}

// Shut closes the gate for a time to lists that have not been admitted.
func (g *Gate) Shut(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for old := g.until.Load(); old < until && !g.until.CompareAndSwap(old, until); old = g.until.Load() {
		continue
	}
}

// IsShut reports whether the gate is closed for a time.
func (g *Gate) IsShut() bool { return time.Now().UnixNano() < g.until.Load() }

// Enter waits for a place. The place counts until it is released: see [Pass.Begin].
func (g *Gate) Enter(ctx context.Context) (*Pass, error) {
	for {
		if err := timer.Sleep(ctx, time.Until(time.Unix(0, g.until.Load()))); err != nil {
			return nil, err
		}
		if err := g.take(ctx); err != nil {
			return nil, err
		}
		if !g.IsShut() {
			return &Pass{gate: g, held: true}, nil
		}
		g.release(false) // the gate was shut during the wait
	}
}

// take waits until there is room for one more list.
func (g *Gate) take(ctx context.Context) error {
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

func (g *Gate) release(flowing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked(flowing)
}

// releaseLocked reduces the count by one, and admits waiting lists if there is room.
func (g *Gate) releaseLocked(flowing bool) {
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
func (g *Gate) flow(stalled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flowing++
	if stalled {
		g.active++
	}
}

// Pass is a place in a gate. Its owner releases it with leave. It stops counting when
// nothing has arrived for too long.
type Pass struct {
	gate *Gate
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

// Begin starts the timer: from now on the server has to send something. It is called only
// after the list has every pass that it needs, since waiting for another gate is not the
// server's fault.
func (p *Pass) Begin() {
	p.idle.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.gate.patience, p.check)
}

// check makes the pass stop counting if nothing has arrived since the last call.
func (p *Pass) check() {
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

// Received records that something has arrived and is being processed.
func (p *Pass) Received() {
	p.beats.Add(1)
	p.idle.Store(false)
	if !p.flows.Load() {
		p.flow()
	}
}

// flow marks the pass as one that receives something. If it had stalled, it counts again.
func (p *Pass) flow() {
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

// Awaits records that the list waits for the server.
func (p *Pass) Awaits() {
	p.beats.Add(1) // the server's time starts again, however long the last object took
	p.idle.Store(true)
}

// Leave releases the place.
func (p *Pass) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.left = true
	p.releaseLocked()
}

func (p *Pass) releaseLocked() {
	if p.held {
		p.held = false
		p.gate.release(p.flows.Swap(false))
	}
}
