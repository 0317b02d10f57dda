// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/views"
)

const (
	// DefaultRecent is the size of the values that an informer has decoded last, in bytes.
	DefaultRecent = 4 << 20
	// DefaultBytesPerCPU is how many bytes of memory cost as much as one CPU. Cloud providers
	// charge 7 to 9 GB.
	DefaultBytesPerCPU = 8 << 30
	// shortest and longest bound T, however fast or slow values are decoded.
	shortest, longest = time.Second, 10 * time.Minute
	// settling is the number of decoded values after which one that took much longer than
	// the others hardly changes T: it may have waited for a CPU.
	settling = 32
	// hitSample is the number of hits of which one is counted, for all of them: readers on
	// several CPUs must not all write one counter.
	hitSample = 16
)

// Options configures a [Cache].
type Options struct {
	// Recent limits the values that were decoded last, in bytes.
	Recent int
	// BytesPerCPU is how many bytes of memory cost as much as one CPU. If it is 0, only
	// these are kept.
	BytesPerCPU int64
	// Max limits the other values, in bytes. 0 is no limit: objects have one value
	// of each type.
	Max int64
}

// Cache keeps decoded values, so that they need not be decoded again. All methods are safe for
// concurrent use. Values that are decoded for a nil Cache are not kept.
//
// The latest values are kept. In addition, a value earns a place when it is read twice
// within T, the time in which holding it costs as much as decoding it again:
//
//	T = time to decode a byte of it * BytesPerCPU / (1 + GOGC/100)
//
// The collector lets the heap grow by GOGC percent, so each byte held takes that much more.
// While there are such values, a timer sweeps every T/2 and drops those that were not read
// since the sweep before the last one, which is T to 1.5 T ago.
//
// Readers of a kept value take no lock, and write to it only if it was not read since the last
// sweep. A cache costs about 300 bytes.
type Cache struct {
	opts Options
	// began is when the clock of the marks began.
	began time.Time
	// epoch is the number of sweeps, the mark of kept values.
	epoch atomic.Uint32
	// n and bytes are of the kept values.
	n, bytes atomic.Int64
	decodes  atomic.Uint64
	hits     atomic.Uint64
	// cost is the time to decode a byte of a value, in picoseconds.
	cost atomic.Int64

	// sweeping is held while kept values are swept. Suspend waits for that.
	sweeping sync.Mutex
	// swept is when they were swept last. sweeping guards it.
	swept time.Time

	// mu guards the fields below. It may be taken while sweeping is held.
	mu     sync.Mutex
	recent recent
	// kept has the views of the kept values, and perhaps others until the next sweep. timer
	// runs while it has any.
	kept  []keptView
	timer *time.Timer
	// suspended means that no values are kept.
	suspended bool
	// watching means that collected is called after the next collection.
	watching bool
}

// keptView is a [views.View] of any type.
type keptView interface {
	Sweep(epoch uint32) bool
	Drop()
}

// New returns an empty cache.
func New(opts Options) *Cache {
	if memory.limit.Load() == 0 && opts.BytesPerCPU > 0 {
		memory.check()
	}
	return &Cache{opts: opts, began: time.Now(), recent: recent{max: opts.Recent}}
}

// Stats are the counts of a cache.
type Stats struct {
	// Kept is the number of values that have earned a place, KeptBytes about what they take.
	Kept, KeptBytes int64
	// RecentBytes is about what the latest values take. Some may be kept as well.
	RecentBytes int64
	// Hits and Decodes are about how many reads found a value, and how many values were decoded.
	Hits, Decodes uint64
	// Lifetime is T, 0 before the first value was decoded.
	Lifetime time.Duration
}

// Stats returns the counts.
func (c *Cache) Stats() (s Stats) {
	if c == nil {
		return s
	}
	s.Kept, s.KeptBytes, s.Decodes, s.Lifetime = c.n.Load(), c.bytes.Load(), c.decodes.Load(), c.lifetime()
	s.Hits = c.hits.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.RecentBytes = int64(c.recent.bytes)
	return s
}

// Resize changes the bound of the latest values, and drops the oldest that exceed it.
func (c *Cache) Resize(max int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent.max = max
	c.recent.drop(0)
}

// Suspend drops all values, and keeps no others until Resume. Values that are decoded meanwhile
// belong to objects that nothing may need any more. It waits for a sweep that is under way.
func (c *Cache) Suspend() {
	if c == nil {
		return
	}
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended = true
	c.recent = recent{max: c.recent.max}
	for _, v := range c.kept {
		v.Drop()
	}
	c.kept = nil
	c.restLocked()
}

// Resume ends a suspension.
func (c *Cache) Resume() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended = false
}

// decoded counts a value that took some time to decode, and keeps it as the latest one.
func (c *Cache) decoded(value any, size int, took time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cost, before, n := took.Nanoseconds()*1000/int64(size), c.cost.Load(), int64(c.decodes.Add(1))
	c.cost.Store(before + (min(cost, 4*before+cost/n)-before)/min(n, settling))
	if !c.suspended {
		c.recent.add(value, size)
	}
}

// lifetime returns T.
func (c *Cache) lifetime() time.Duration {
	cost := c.cost.Load()
	if cost <= 0 || c.opts.BytesPerCPU == 0 {
		return 0
	}
	t := float64(cost) / 1000 * float64(c.opts.BytesPerCPU) / (1 + float64(memory.gogc.Load())/100)
	return max(min(time.Duration(t), longest)>>memory.scarce.Load(), shortest)
}

// read records a read of a value that is not kept, and keeps it if it was read within T before. The
// mark is in milliseconds and never 0. It repeats after 49 days, and a value that was read at such
// a distance may be kept for T.
func read[P any](c *Cache, v *views.View[P], p *P, size int) {
	if c == nil || c.opts.BytesPerCPU == 0 {
		return
	}
	now := max(uint32(time.Since(c.began).Milliseconds()), 1)
	before := v.Read.Swap(now)
	if before == 0 || time.Duration(now-before)*time.Millisecond > c.lifetime() || !memory.fits(size) ||
		c.opts.Max > 0 && c.bytes.Load()+int64(size) > c.opts.Max {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended || !v.Keep(p, size, c) {
		return
	}
	v.Read.Store(c.epoch.Load())
	c.kept = append(c.kept, v)
	if c.timer == nil {
		c.timer = time.AfterFunc(c.period(), c.tick)
		c.watchLocked()
	}
}

// Hold counts values that are kept. It is the method of [views.Holder].
func (c *Cache) Hold(values, bytes int) {
	c.n.Add(int64(values))
	c.bytes.Add(int64(bytes))
	memory.kept.Add(int64(bytes))
}

// period returns the time between two ticks.
func (c *Cache) period() time.Duration { return min(c.lifetime()/2, checkEvery) }

// restLocked stops the timer if nothing is kept.
func (c *Cache) restLocked() {
	if len(c.kept) == 0 && c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// watchLocked makes the runtime call collected after the next collection.
func (c *Cache) watchLocked() {
	if !c.watching && c.timer != nil {
		c.watching = true
		runtime.AddCleanup(&struct{ _ [16]byte }{}, (*Cache).collected, c)
	}
}

// collected checks the memory after a collection, and drops values if it is scarce.
func (c *Cache) collected() {
	memory.check()
	if memory.scarce.Load() > 0 || !memory.fits(0) {
		c.sweep()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching = false
	c.watchLocked()
}

// tick checks the memory of the process, and sweeps when T/2 has passed.
func (c *Cache) tick() {
	memory.check()
	c.sweep()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Reset(c.period())
	}
}

// sweep drops the values that were not read since the sweep before the last one, if T/2 has passed
// since the last one. It drops any values, beginning with the oldest, if all caches together keep
// more than they may.
func (c *Cache) sweep() {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	due := time.Since(c.swept) >= c.lifetime()/2
	if !due && memory.fits(0) {
		return
	}
	if due {
		c.swept = time.Now()
		defer c.epoch.Add(1)
	}
	c.mu.Lock()
	kept := c.kept
	c.kept = nil
	c.mu.Unlock()
	epoch, n := c.epoch.Load(), 0
	for _, v := range kept {
		if !memory.fits(0) {
			v.Drop()
		} else if v.Sweep(epoch) {
			kept[n] = v
			n++
		}
	}
	clear(kept[n:])
	if kept = kept[:n]; n < cap(kept)/4 {
		kept = append([]keptView(nil), kept...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(kept, c.kept...)
	c.restLocked()
}
