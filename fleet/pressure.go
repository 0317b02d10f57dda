// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// Pressure is how scarce the memory of the process is. Each step includes those before it.
type Pressure int32

const (
	// PressureNone means that there is memory for everything in [Options].
	PressureNone Pressure = iota
	// PressureCaches keeps an eighth of [Options.Decoded].
	PressureCaches
	// PressureHistory keeps an eighth of [Options.History] and of the states for slow
	// readers. Readers that fall behind more than that receive differences, and watches of
	// feeds begin again.
	PressureHistory
	// PressureFull drops the resources of [Options.Expendable] and lists no further resource
	// that is not small, see [Memory.Spare]. They fail with an error that is [ErrLimit], and
	// are listed when there is room for them.
	PressureFull
	// PressureCritical keeps no further object of a resource that is not small. A resource
	// that has a new object ceases to be read, as one that exceeds [Limits], and if it is being
	// listed for the first time its objects are dropped. Changes of objects that are kept still
	// arrive.
	PressureCritical
)

// String returns the name of the pressure.
func (p Pressure) String() string {
	names := [...]string{"none", "caches", "history", "full", "critical"}
	if p < 0 || int(p) >= len(names) {
		return fmt.Sprintf("Pressure(%d)", int32(p))
	}
	return names[p]
}

// reliefShare is the part of a cache or a log that is kept under pressure.
const reliefShare = 8

// Memory is how much memory a fleet may use.
type Memory struct {
	Pressure Pressure
	// Room is how many bytes further resources may take. A resource is not listed if its
	// objects would take more, by an estimate, and its first list is given up if they do.
	// Without that, many lists could begin and none could end.
	Room int64
	// Spare is how many bytes small resources may take for which there is no Room: those that
	// take less than a sixteenth of it. So one large resource cannot keep the many small ones
	// of its cluster from being current.
	Spare int64
	// Collections is how many garbage collections Room and Spare have taken into account.
	Collections uint64
}

// pressure is the memory that a fleet may use now. It has no limit before SetMemory is called.
type pressure struct {
	now atomic.Int32
	// refused means that there was no room for a list.
	refused atomic.Bool
	// shed means that expendable resources are not mirrored.
	shed atomic.Bool
	// room is what is left for lists.
	room room
}

// set sets the memory that may be used.
func (p *pressure) set(m Memory) {
	if p.room.isShort() && m.Pressure < PressureHistory {
		m.Pressure = PressureHistory // objects are more important than history
	}
	p.now.Store(int32(m.Pressure))
	p.room.set(m)
}

func (p *pressure) is(at Pressure) bool { return Pressure(p.now.Load()) >= at }

// share returns the part of a bound that is kept if the pressure is at least at.
func (p *pressure) share(bound int64, at Pressure) int64 {
	if p.is(at) {
		return bound / reliefShare
	}
	return bound
}

const (
	// objectEstimate is how many bytes an object is expected to take.
	objectEstimate = 1536
	// listOverhead is how many bytes a list takes besides its objects, as buffers.
	listOverhead = 1 << 20
	// smallShare is the part of [Memory.Spare] that a small resource takes at most.
	smallShare = 16
	// roomPatience is how long a list waits for room before it is given up. Caches and
	// history are reduced in that time, and garbage is collected.
	roomPatience = 5 * time.Second
	// shortAge is for how long after a lack of room the history stays reduced.
	shortAge = time.Minute
	// readingPatience is how long a list waits for the next reading of the memory.
	readingPatience = time.Second
)

// room is the memory that is left for first lists. A reading of the memory is from the last
// garbage collection, which can be some time ago, and many lists can begin and grow after it.
// So room adds what the lists have taken since then, and what they are expected to take.
type room struct {
	// collecting is held during a garbage collection for a list.
	collecting sync.Mutex

	// mu guards the fields below. now is the last reading, and limited whether there was one.
	mu      sync.Mutex
	limited bool
	now     Memory
	demands map[*demand]struct{}
	// read is closed with the next reading, nil if nothing waits for it.
	read chan struct{}
	// short is when there was last no room for a list.
	short time.Time
}

// demand is what the first list of a resource takes.
type demand struct {
	used *usage
	// estimate is how many bytes the objects are expected to take.
	estimate int64
	// seen is how many bytes they took at the last reading, and counted how many of them the
	// reading includes at least.
	seen, counted int64
	// ended means that the list has ended, and settled that there was a reading after that.
	// The demand stays until a reading includes all of its objects.
	ended, settled bool
}

// open returns how many bytes the reading does not include.
func (d *demand) open() int64 {
	take := d.used.kept()
	if !d.ended {
		take = max(take, d.estimate) + listOverhead
	}
	return max(0, take-d.counted)
}

// set sets the result of a reading.
func (r *room) set(m Memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	collected := m.Collections != r.now.Collections
	r.limited, r.now = true, m
	for d := range r.demands {
		if collected {
			// The collection can have been at any time since the reading before.
			d.counted = d.seen
			if d.settled {
				delete(r.demands, d)
				continue
			}
		}
		d.seen, d.settled = d.used.kept(), d.ended
	}
	if r.read != nil {
		close(r.read)
		r.read = nil
	}
}

// isShort reports whether there was no room for a list recently.
func (r *room) isShort() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.short.IsZero() && time.Since(r.short) < shortAge
}

// fits reports whether there is room for n more bytes of a resource that has some already.
// At [PressureFull] there is room for small resources only.
func (r *room) fits(has, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fitsLocked(has, n)
}

func (r *room) fitsLocked(has, n int64) bool {
	if !r.limited {
		return true
	}
	open := int64(0)
	for d := range r.demands {
		open += d.open()
	}
	if spare := r.now.Spare - open; n <= spare && has+n <= spare/smallShare {
		return true
	}
	return r.now.Pressure < PressureFull && n <= r.now.Room-open
}

// reserve reserves n bytes for the first list of a resource. It returns false if there are
// not as many. The caller calls release when the list has ended.
func (r *room) reserve(u *usage, n int64) (*demand, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fitsLocked(u.kept(), n) {
		r.short = time.Now()
		return nil, false
	}
	d := &demand{used: u, estimate: n}
	if r.demands == nil {
		r.demands = map[*demand]struct{}{}
	}
	r.demands[d] = struct{}{}
	return d, true
}

// release ends a demand. If nothing is kept of the list, the demand is forgotten.
func (r *room) release(d *demand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.ended = true
	if !r.limited || d.used.kept() == 0 {
		delete(r.demands, d)
	}
}

// grow reserves memory for n more bytes of a list that is under way, and reports whether
// there is as much. It waits for it, up to roomPatience.
func (r *room) grow(ctx context.Context, d *demand, n int64) (bool, error) {
	for end := time.Now().Add(roomPatience); ; {
		if r.growNow(d, n) {
			return true, nil
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		if err := r.reread(ctx); err != nil {
			return false, err
		}
	}
}

// growNow reserves memory for n more bytes if there is as much.
func (r *room) growNow(d *demand, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := d.used.kept()
	take := has + n
	if take <= d.estimate && r.now.Pressure < PressureCritical {
		return true
	}
	before := d.estimate
	d.estimate = 0 // what the list has taken remains open
	fits := r.fitsLocked(has, n)
	d.estimate = before
	if fits {
		d.estimate = max(before, take)
		return true
	}
	r.short = time.Now()
	return false
}

// reread collects garbage and waits for a reading after it.
func (r *room) reread(ctx context.Context) error {
	r.mu.Lock()
	was := r.now.Collections
	r.mu.Unlock()
	// After this reading all that the list has taken is seen.
	if err := r.nextReading(ctx); err != nil {
		return err
	}
	r.collect(was)
	return r.nextReading(ctx)
}

// collect collects garbage, unless there has been a collection since the reading.
func (r *room) collect(was uint64) {
	r.collecting.Lock()
	defer r.collecting.Unlock()
	r.mu.Lock()
	now := r.now.Collections
	r.mu.Unlock()
	if now == was {
		runtime.GC()
	}
}

// nextReading waits for the next reading, up to readingPatience.
func (r *room) nextReading(ctx context.Context) error {
	r.mu.Lock()
	if r.read == nil {
		r.read = make(chan struct{})
	}
	read := r.read
	r.mu.Unlock()
	late := time.NewTimer(readingPatience)
	defer late.Stop()
	select {
	case <-read:
	case <-late.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// drop removes the objects of a first list that is given up, so that they do not take memory
// until the next one. Nothing has read them. It waits until those that are on their way have
// arrived.
func (u *usage) drop(ctx context.Context) error {
	const poll = 10 * time.Millisecond
	for u.of.Status().Queued > 0 {
		if err := timer.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	had := u.kept()
	u.empty()
	if had >= listOverhead {
		debug.FreeOSMemory() // the room for other resources is known at once
	}
	return nil
}
