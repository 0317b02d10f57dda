// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"sync"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

const (
	// settleAfter is how long an object has to be unchanged, at least, before it is
	// packed densely, and how often it is looked for such.
	settleAfter = 30 * time.Second
	// Settling works for a moment and rests for three: it has time, and readers
	// and other informers may need the processor.
	settleWork, settleRest = 2 * time.Millisecond, 6 * time.Millisecond
	// fresh is how many bytes of new states are left as they came, for the handlers
	// that are about to decode them.
	fresh = 1 << 20
	// packedQueue is how many states may wait to be stored, and as many again are
	// being stored: what waits is not packed, and a list would fill a long queue.
	packedQueue = 256
)

// packing keeps the objects of one life packed: each new state after a moment, in
// the cheap way, and densely what has not changed for a while.
type packing struct {
	packer *wire.Packer
	store  *store.Store[*wire.Object]

	// mu is held while objects are packed, and guards what follows.
	mu sync.Mutex
	// waiting are new states, oldest first, and bytes what they take.
	waiting []waitingState
	bytes   int
	// running says that settle runs.
	running bool
	// Versions up to settled are packed densely, with the dictionary newest. Those
	// up to next are so old that they can be the next time.
	settled, next uint64
	newest        any
}

// waitingState is a new state, and the one before it.
type waitingState struct{ now, old *wire.Object }

func newPacking(s *store.Store[*wire.Object]) *packing {
	return &packing{packer: wire.NewPacker(), store: s}
}

// pack takes new states, and packs those that have waited. The readers have been
// told of them already.
func (p *packing) pack(changes []change) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range changes {
		if c := &changes[i]; c.Type != delta.Deleted {
			p.waiting = append(p.waiting, waitingState{c.New, c.Old})
			p.bytes += c.New.Size()
		}
	}
	n := 0
	for ; n < len(p.waiting) && p.bytes > fresh; n++ {
		w := p.waiting[n]
		p.bytes -= w.now.Size()
		p.packer.Pack(w.now, w.old)
		p.waiting[n] = waitingState{}
	}
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting, p.bytes = nil, 0
	}
}

// packWaiting packs what has waited, because nothing else has come.
func (p *packing) packWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiting {
		p.packer.Pack(w.now, w.old)
	}
	p.waiting, p.bytes = nil, 0
}

// settle packs densely what has not changed since settle was called before.
func (p *packing) settle(ctx context.Context) {
	p.packWaiting()
	snap := p.store.Snapshot()
	p.mu.Lock()
	from, to := p.settled, p.next
	p.next = snap.Version()
	if p.running || to == 0 {
		p.mu.Unlock()
		return
	}
	p.running = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running = false
	}()

	first, known := true, p.newest
	began := time.Now()
	for _, o := range snap.All() {
		if first {
			// Objects packed with another dictionary are packed again, all of them,
			// so that nothing needs that one any more.
			if first, p.newest = false, p.packer.Newest(o); p.newest != known {
				from = 0
			} else if from == to {
				return
			}
		}
		if v := o.Version(); v > to || v <= from && v != 0 {
			continue
		}
		p.mu.Lock()
		p.packer.Settle(o)
		p.mu.Unlock()
		if time.Since(began) < settleWork {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settleRest):
			began = time.Now()
		}
	}
	p.settled = to
}
