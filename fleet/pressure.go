// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/reflector"
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
	// PressureFull drops the resources of [Options.Expendable] and lists no further resource.
	// They fail with an error that is [ErrLimit], and are tried again every 10 seconds.
	PressureFull
	// PressureCritical keeps no further object. A resource that has a new object ceases to be
	// read, as one that exceeds [Limits], and if it is being listed for the first time its
	// objects are dropped. Changes of objects that are kept still arrive.
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

const (
	// reliefShare is the part of a cache or a log that is kept under pressure.
	reliefShare = 8
	// pressureRetry is how long a resource that needs more memory waits.
	pressureRetry = 10 * time.Second
)

// Memory is how much memory a fleet may use.
type Memory struct {
	Pressure Pressure
	// Room is how many bytes further resources may take. A resource is not listed if its
	// objects would take more, by an estimate. Without that, many lists could begin and none
	// could end.
	Room int64
}

// objectEstimate is how many bytes an object is expected to take.
const objectEstimate = 1536

// pressure is the memory that a fleet may use now. It has no limit before SetMemory is called.
type pressure struct {
	now     atomic.Int32
	limited atomic.Bool
	room    atomic.Int64
	// reserved is for the first lists that have begun.
	reserved atomic.Int64
	// refused means that there was no room for a list.
	refused atomic.Bool
	// shed means that expendable resources are not mirrored.
	shed atomic.Bool
}

func (p *pressure) is(at Pressure) bool { return Pressure(p.now.Load()) >= at }

// share returns the part of a bound that is kept if the pressure is at least at.
func (p *pressure) share(bound int64, at Pressure) int64 {
	if p.is(at) {
		return bound / reliefShare
	}
	return bound
}

// reserve reserves memory for the first list of a resource with so many objects. The caller
// calls release when the list has ended.
func (p *pressure) reserve(objects int64) (release func(), err error) {
	need := max(objects, 0) * objectEstimate
	reserved := p.reserved.Add(need)
	if p.limited.Load() && (p.is(PressureFull) || reserved > p.room.Load()) {
		p.reserved.Add(-need)
		p.refused.Store(true)
		return nil, &reflector.Error{RetryAfter: pressureRetry, Err: fmt.Errorf("%w: the process has no memory for another resource, with %d objects", ErrLimit, max(objects, 0))}
	}
	return func() { p.reserved.Add(-need) }, nil
}
