// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Budget is what reading the state of one cluster may cost its API server. It does
// not concern watches, which cost what changes.
type Budget struct {
	// Lists is how many resources are read at once. Default 4.
	Lists int
	// BytesPerSecond bounds what is read of them all. With it states are listed in
	// pages, not streamed: a server ends a stream that is read too slowly. Default:
	// no bound.
	BytesPerSecond int64
}

const (
	// A list on which nothing comes for so long does not count any more: it must not
	// keep others from theirs. A server is given more time than the rest of the fleet
	// is asked to wait, because a slow answer may be a sign of load.
	clusterPatience, fleetPatience = 5 * time.Second, time.Second
	// fleetLists is how many resources are read at once in the whole fleet, for each
	// processor: what has arrived and waits to be stored takes some MB for each.
	fleetLists = 6
)

// gate lets a number through at a time, in the order in which they came.
type gate struct {
	slots chan struct{}
	// patience is how long a pass may be idle before it is taken back.
	patience time.Duration
	// until is when the gate opens again, in nanoseconds since 1970.
	until atomic.Int64
}

func newGate(n int, patience time.Duration) *gate {
	return &gate{slots: make(chan struct{}, n), patience: patience}
}

// taken reports whether anybody is through and has not left.
func (g *gate) taken() bool { return len(g.slots) > 0 }

// shut closes the gate for a time to those who come.
func (g *gate) shut(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for old := g.until.Load(); old < until && !g.until.CompareAndSwap(old, until); old = g.until.Load() {
		continue
	}
}

// pass is a place in a gate, which its owner gives back with leave. It is lost if
// nothing happens for too long.
type pass struct {
	gate *gate
	// beats counts what has come, idle says that more is awaited.
	beats atomic.Uint64
	idle  atomic.Bool

	// mu guards what follows.
	mu    sync.Mutex
	held  bool
	seen  uint64
	timer *time.Timer
}

// enter waits for a place.
func (g *gate) enter(ctx context.Context) (*pass, error) {
	for {
		if err := sleep(ctx, time.Until(time.Unix(0, g.until.Load()))); err != nil {
			return nil, err
		}
		select {
		case g.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if time.Now().UnixNano() >= g.until.Load() {
			break
		}
		<-g.slots // shut while this one waited
	}
	p := &pass{gate: g, held: true}
	p.idle.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(g.patience, p.look)
	return p, nil
}

// look takes the place back if nothing has come since the last look.
func (p *pass) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held {
		return
	}
	if beats := p.beats.Load(); p.idle.Load() && beats == p.seen {
		p.releaseLocked()
		return
	} else {
		p.seen = beats
	}
	p.timer.Reset(p.gate.patience)
}

// came says that something has come and is being dealt with.
func (p *pass) came() {
	p.beats.Add(1)
	p.idle.Store(false)
}

// awaits says that it is the server's turn.
func (p *pass) awaits() { p.idle.Store(true) }

// leave gives the place back.
func (p *pass) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.releaseLocked()
}

func (p *pass) releaseLocked() {
	if p.held {
		p.held = false
		<-p.gate.slots
	}
}

// meter slows a reader down to a number of bytes per second. All methods are safe
// for concurrent use, and do nothing on nil.
type meter struct {
	perSecond int64

	// mu guards free, which is when what was read has been paid for.
	mu   sync.Mutex
	free time.Time
}

// newMeter returns nil if there is no bound.
func newMeter(perSecond int64) *meter {
	if perSecond <= 0 {
		return nil
	}
	return &meter{perSecond: perSecond}
}

// read waits until n more bytes may be read.
func (m *meter) read(ctx context.Context, n int) error {
	if m == nil {
		return nil
	}
	wait := m.pay(n)
	if wait < 10*time.Millisecond {
		return nil // so little is made up for by the next
	}
	return sleep(ctx, wait)
}

// pay is how long to wait for n bytes.
func (m *meter) pay(n int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.free.Before(now) {
		m.free = now
	}
	m.free = m.free.Add(time.Duration(float64(n) / float64(m.perSecond) * float64(time.Second)))
	return m.free.Sub(now)
}

// sleep waits, not at all if the wait is over, or ends with the context.
func sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
