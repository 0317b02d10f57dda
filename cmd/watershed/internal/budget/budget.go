// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package budget

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// every is how often the memory is read. It costs some microseconds.
	every = 250 * time.Millisecond
	// calm is how long the memory must be below a threshold, by margin percent of the limit,
	// before its measure ends.
	calm   = 15 * time.Second
	margin = 5
	// collectEvery is how often memory that a measure has made garbage is collected at once, so
	// that the next reading shows the effect of the measure.
	collectEvery = 5 * time.Second
)

// thresholds are the percentages of the limit at which each pressure begins. The garbage
// collector needs the rest: at 84 % it runs after every 16 % that are allocated.
var thresholds = [...]int64{
	fleet.PressureCaches: 60, fleet.PressureHistory: 68, fleet.PressureFull: 76, fleet.PressureCritical: 84,
}

// spare is the percentage of the limit up to which small resources are kept.
const spare = 90

// effects are what each pressure means, for the log.
var effects = [...]string{
	fleet.PressureNone:     "everything is kept again",
	fleet.PressureCaches:   "the caches are reduced",
	fleet.PressureHistory:  "the history is reduced: clients that resume old watches list again",
	fleet.PressureFull:     "no further resources are mirrored, except small ones",
	fleet.PressureCritical: "resources with new objects are not kept up to date, except small ones",
}

// Stats are the state of a budget.
type Stats struct {
	// Limit and Used are in bytes.
	Limit, Used int64
	Pressure    fleet.Pressure
}

// Budget is the memory limit of the process. Stats is safe for concurrent use.
type Budget struct {
	limit  int64
	apply  func(fleet.Memory)
	logger *slog.Logger
	read   func() (used int64, collections uint64)

	now, bytes atomic.Int64
	// below is when the memory was first low enough for the pressure before this one, zero
	// if it is not. collected is when garbage was last collected. Only Run uses them.
	below, collected time.Time
}

// New returns a budget of limit bytes and makes it the limit of Go's runtime too. Run calls
// apply after each reading.
func New(limit int64, logger *slog.Logger, apply func(fleet.Memory)) *Budget {
	debug.SetMemoryLimit(limit)
	return &Budget{limit: limit, apply: apply, logger: logger, read: newReading().read}
}

// Stats returns the present state.
func (b *Budget) Stats() Stats {
	return Stats{Limit: b.limit, Used: b.bytes.Load(), Pressure: fleet.Pressure(b.now.Load())}
}

// Run adapts the pressure until ctx ends.
func (b *Budget) Run(ctx context.Context) error {
	for timer.Sleep(ctx, every) == nil {
		b.step(time.Now())
	}
	return nil
}

// step reads the memory once.
func (b *Budget) step(at time.Time) {
	used, collections := b.read()
	b.bytes.Store(used)
	now := fleet.Pressure(b.now.Load())
	next := b.next(now, used, at)
	b.apply(fleet.Memory{
		Pressure:    next,
		Room:        b.limit*thresholds[fleet.PressureFull]/100 - used,
		Spare:       b.limit*spare/100 - used,
		Collections: collections,
	})
	if next == now {
		return
	}
	b.now.Store(int64(next))
	level := slog.LevelInfo
	if next > now {
		level = slog.LevelWarn
	}
	b.logger.Log(context.Background(), level, "memory limit", "used", mebibytes(used), "limit", mebibytes(b.limit),
		"pressure", next, "effect", effects[next])
	if next > now && at.Sub(b.collected) > collectEvery {
		b.collected = at
		runtime.GC()
	}
}

// next returns the pressure that follows. It rises at once, but by one measure at a time below
// critical, as each may suffice. It falls by one after a calm time.
func (b *Budget) next(now fleet.Pressure, used int64, at time.Time) fleet.Pressure {
	percent := used * 100 / b.limit
	if percent >= thresholds[fleet.PressureCritical] {
		b.below = time.Time{}
		return fleet.PressureCritical
	}
	if now < fleet.PressureCritical && percent >= thresholds[now+1] {
		b.below = time.Time{}
		return now + 1
	}
	if now == fleet.PressureNone || percent >= thresholds[now]-margin {
		b.below = time.Time{}
		return now
	}
	if b.below.IsZero() {
		b.below = at
	}
	if at.Sub(b.below) < calm {
		return now
	}
	b.below = at
	return now - 1
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
