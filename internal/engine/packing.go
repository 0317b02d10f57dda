// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

const (
	// settleAfter is the minimum time that an object must be unchanged before it is
	// packed densely, and how often such objects are searched for.
	settleAfter = 30 * time.Second
	// settleWork is how long settling works before it pauses.
	settleWork = 2 * time.Millisecond
	// busyRest is the length of a pause of settling while there is more urgent work.
	busyRest = 100 * time.Millisecond
	// busyRests is the number of such pauses after which settling works again in any
	// case, because the urgent work may never end.
	busyRests = 3
	// fresh is how many bytes of new states stay unpacked, for the handlers that are
	// about to decode them.
	fresh = 1 << 20
	// packedQueue is how many states may wait to be stored, and as many again are being
	// stored. Waiting states are not packed, and a list would fill a long queue.
	packedQueue = 256
)

// Packing is shared by engines that pack: one dictionary for each kind, and turns at packing
// densely, which one life takes at a time. It costs about 300 KB for each kind, as long as an
// engine runs that has packed objects of the kind.
type Packing struct {
	packer *objectpack.Packer
	rest   time.Duration
	busy   func() bool // may be nil
	// users is the number of running lives that use it.
	users atomic.Int64

	// mu guards the fields below: whether a life has the turn, and the lives that are
	// next. They do not wait as goroutines, because there may be many.
	mu    sync.Mutex
	taken bool
	next  []*packingTurn
}

// packingTurn is a life's place in the queue of a [Packing]. The packing's mu guards it.
type packingTurn struct {
	// start begins to settle, and reports whether it did.
	start func() bool
	// over means that the life has ended and must not be queued again.
	over bool
}

// ask starts a turn now, or when the earlier ones are done. A turn that has started
// must call done.
func (p *Packing) ask(t *packingTurn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.over {
		return
	}
	p.next = append(p.next, t)
	if !p.taken {
		p.startLocked()
	}
}

// leave removes an ended life from the queue, which must not keep it alive.
func (p *Packing) leave(t *packingTurn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.over = true
	p.next = slices.DeleteFunc(p.next, func(other *packingTurn) bool { return other == t })
}

// done passes the turn to the next life.
func (p *Packing) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startLocked()
}

func (p *Packing) startLocked() {
	p.taken = false
	for len(p.next) > 0 && !p.taken {
		t := p.next[0]
		p.next[0] = nil
		p.next = p.next[1:]
		p.taken = t.start()
	}
}

// NewPacking returns a packing without dictionaries. Settling is the share of one CPU for
// packing densely, by default 0.25. Dictionaries limits the memory of dictionaries and samples,
// in bytes, by default 256 MiB. Busy reports whether there is more urgent work, and may be nil.
func NewPacking(settling float64, dictionaries int64, busy func() bool) *Packing {
	if settling <= 0 {
		settling = 0.25
	}
	rest := time.Duration(float64(settleWork) * (1/settling - 1))
	return &Packing{packer: objectpack.NewPacker(dictionaries), rest: max(rest, 0), busy: busy}
}

// DictionaryBytes returns the bytes that dictionaries and samples take.
func (p *Packing) DictionaryBytes() int64 { return p.packer.DictionaryBytes() }

// packing keeps the objects of one life packed. New states are packed cheaply after a
// moment, and densely once they have not changed for a while.
type packing struct {
	shared *Packing
	packer *objectpack.Packer
	store  *store.Store[*wire.Object]
	held   *holdings
	turn   packingTurn

	// mu is held while objects are packed and while the store is written, so that the
	// sizes in held stay right. It guards the fields below.
	mu sync.Mutex
	// waiting has the new states, oldest first. bytes is their size. replaced means that
	// the store may not have all of them any more.
	waiting  []waitingState
	bytes    int
	replaced bool
	// prepared has the packed bytes of the waiting states.
	prepared map[*wire.Object]*objectpack.Body
	// waits means that settle runs or waits for its turn.
	waits bool
	// Versions up to settled are packed densely, with the dictionary newest. The
	// current turn packs versions up to to. Versions up to next are old enough for the
	// turn after it. All are versions of the same era of the store.
	settled, to, next uint64
	era               uint64
	newest            any
}

// waitingState is a new state and the one before it.
type waitingState struct{ now, old *wire.Object }

func newPacking(s *store.Store[*wire.Object], held *holdings, shared *Packing) *packing {
	if shared == nil {
		shared = NewPacking(0, 0, nil)
	}
	return &packing{
		shared: shared, packer: shared.packer.Fork(), store: s, held: held,
		prepared: map[*wire.Object]*objectpack.Body{},
	}
}

// write calls a function that writes to the store. Objects are not packed meanwhile.
func (p *packing) write(apply func() []Change) []Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	return apply()
}

// holdsLocked reports whether the store has a state now.
func (p *packing) holdsLocked(o *wire.Object) bool {
	now, ok := p.store.Get(o.Key())
	return ok && now == o
}

// packLocked packs a state that has waited. The store is searched only if it may not have
// the state any more: the states of a first list are not replaced.
func (p *packing) packLocked(w waitingState) {
	held := func() bool { return !p.replaced || p.holdsLocked(w.now) }
	p.held.resize(w.now, func() {
		if packed := p.prepared[w.now]; packed != nil {
			p.packer.Store(w.now, packed, w.old)
		} else {
			p.packer.Pack(w.now, w.old) // there may be a dictionary now
		}
	}, held)
	delete(p.prepared, w.now)
}

// prepareLocked packs a new state without storing the result in the object, so that handlers that
// are about to decode the state find it unpacked. It returns nil if the object will not be packed,
// or later.
func (p *packing) prepareLocked(now, old *wire.Object) *objectpack.Body {
	var before *objectpack.Body
	if old != nil {
		if before = p.prepared[old]; before == nil {
			before = old.Cell().Body.Load()
		}
	}
	packed := p.packer.Prepare(now, before)
	if packed != nil {
		p.prepared[now] = packed
	}
	return packed
}

// settleLocked packs a state densely. Near is the object with the previous key, or nil.
func (p *packing) settleLocked(o, near *wire.Object) {
	p.held.resize(o, func() { p.packer.Settle(o, near) }, func() bool { return p.holdsLocked(o) })
}

// pack packs new states, and stores the packed bytes in the states that have waited. The readers
// have already been notified of them. It returns the packed bytes of the new states, nil for one
// that is not packed yet. They are for the files, so that a state is packed once.
func (p *packing) pack(changes []Change) []*objectpack.Body {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	packed := make([]*objectpack.Body, len(changes))
	for i := range changes {
		c := &changes[i]
		p.replaced = p.replaced || c.Old != nil
		if c.Type != delta.Deleted {
			packed[i] = p.prepareLocked(c.New, c.Old)
			p.waiting = append(p.waiting, waitingState{c.New, c.Old})
			p.bytes += c.New.Size()
		}
	}
	n := 0
	for ; n < len(p.waiting) && p.bytes > fresh; n++ {
		w := p.waiting[n]
		p.bytes -= w.now.Size()
		p.packLocked(w)
		p.waiting[n] = waitingState{}
	}
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting, p.bytes, p.replaced = nil, 0, false
	}
	return packed
}

// packWaiting packs the waiting states. It is called when no new ones push them out.
func (p *packing) packWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiting {
		p.packLocked(w)
	}
	p.waiting, p.bytes, p.replaced = nil, 0, false
}

// due prepares to settle. It reports whether there are objects old enough, unless
// settle already runs or waits for its turn.
func (p *packing) due() bool {
	p.packWaiting()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits {
		return false
	}
	now := p.store.Snapshot()
	if now.Era() != p.era {
		p.era, p.settled, p.next = now.Era(), 0, 0
	}
	p.to, p.next = p.next, now.Version()
	p.waits = p.to != 0
	return p.waits
}

// settle packs densely the objects that have not changed since the last but one call of
// due. It is called after each due that returned true, or never again.
func (p *packing) settle(ctx context.Context) {
	p.mu.Lock()
	from, to, known := p.settled, p.to, p.newest
	p.mu.Unlock()
	newest, ok := p.walk(ctx, from, to, known)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = false
	if ok {
		p.settled, p.newest = to, newest
	}
}

// walk settles the objects with versions above from and up to to, or all up to to if
// the newest dictionary is not the known one. It returns the newest dictionary, and
// whether it visited all objects.
func (p *packing) walk(ctx context.Context, from, to uint64, known any) (newest any, ok bool) {
	first := true
	began := time.Now()
	var last *wire.Object
	for _, o := range p.store.Snapshot().All() {
		near := last
		last = o
		if first {
			// All objects that were packed with another dictionary are packed again, so
			// that the other can be freed.
			first, newest = false, p.packer.Newest(o)
			if newest != known {
				from = 0
			} else if from == to {
				return newest, true
			}
		}
		if v := o.Version(); v > to || v <= from && v != 0 {
			continue
		}
		p.mu.Lock()
		p.settleLocked(o, near)
		p.mu.Unlock()
		if time.Since(began) < settleWork {
			continue
		}
		if !p.shared.pause(ctx) {
			return newest, false
		}
		began = time.Now()
	}
	return newest, true
}

// pause sleeps, for longer if there is more urgent work. It returns false if ctx has
// ended.
func (p *Packing) pause(ctx context.Context) bool {
	rest := p.rest
	for n := 0; ; n++ {
		if timer.Sleep(ctx, rest) != nil {
			return false
		}
		if p.busy == nil || n == busyRests || !p.busy() {
			return true
		}
		rest = busyRest
	}
}

// holdings counts the objects that a store holds, so that nothing has to walk them. The
// writer and the goroutine that packs keep it up to date. It costs 16 bytes, and two
// atomic additions for each batch and for each object that is packed.
type holdings struct {
	// bytes is the sum of the objects' sizes, packed the number of packed objects.
	bytes, packed atomic.Int64
}

// apply counts the changes of a batch. The sizes of the objects must not change meanwhile.
func (h *holdings) apply(changes []Change) {
	var bytes, packed int64
	for i := range changes {
		c := &changes[i]
		if c.Type == delta.Sync {
			continue
		}
		if c.Type != delta.Deleted {
			bytes += int64(c.New.Size())
			packed += one(c.New.Packed())
		}
		if c.Old != nil {
			bytes -= int64(c.Old.Size())
			packed -= one(c.Old.Packed())
		}
	}
	h.bytes.Add(bytes)
	h.packed.Add(packed)
}

// resize calls pack, which may change the size of an object, and counts the difference.
// Held is called only if there is one: it reports whether the store has the object.
func (h *holdings) resize(o *wire.Object, pack func(), held func() bool) {
	size, packed := o.Size(), o.Packed()
	pack()
	if now := o.Size(); (now != size || o.Packed() != packed) && held() {
		h.bytes.Add(int64(now - size))
		h.packed.Add(one(o.Packed()) - one(packed))
	}
}

// one returns 1 for true and 0 for false.
func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
