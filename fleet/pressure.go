// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"sync/atomic"
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
