// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package quota

import (
	"context"
	"runtime"
	"sync"
	"time"
)

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
	used *Usage
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
func (r *room) reserve(u *Usage, n int64) (*demand, bool) {
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
