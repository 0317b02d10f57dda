// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package quota

import (
	"fmt"
	"sync/atomic"
)

// Pressure is how scarce the memory of the process is. Each step includes those before it.
type Pressure int32

const (
	// PressureNone means that there is memory for everything.
	PressureNone Pressure = iota
	// PressureCaches keeps an eighth of the caches.
	PressureCaches
	// PressureHistory keeps an eighth of the history too.
	PressureHistory
	// PressureFull lists no further resource that is not small.
	PressureFull
	// PressureCritical keeps no further object of a resource that is not small.
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

// Process is the memory that a fleet may use now. It has no limit before [Process.Set] is called.
// The zero value is ready. All methods are safe for concurrent use.
type Process struct {
	now atomic.Int32
	// refused means that there was no room for a list.
	refused atomic.Bool
	// shed means that expendable resources are not mirrored.
	shed atomic.Bool
	// room is what is left for lists.
	room room
}

// Set sets the memory that may be used.
func (p *Process) Set(m Memory) {
	if p.room.isShort() && m.Pressure < PressureHistory {
		m.Pressure = PressureHistory // objects are more important than history
	}
	p.now.Store(int32(m.Pressure))
	p.room.set(m)
}

// Pressure returns the pressure that was set last.
func (p *Process) Pressure() Pressure { return Pressure(p.now.Load()) }

// Refused reports whether there was no room for a list since the last call of [Process.Restore].
func (p *Process) Refused() bool { return p.refused.Load() }

// Shed makes [Process.IsShed] return true, and reports whether it returned false before.
func (p *Process) Shed() bool { return !p.shed.Swap(true) }

// IsShed reports whether expendable resources are not to be mirrored.
func (p *Process) IsShed() bool { return p.shed.Load() }

// Restore makes expendable resources wanted again.
func (p *Process) Restore() {
	p.refused.Store(false)
	p.shed.Store(false)
}

// Share returns the part of a bound that is kept if the pressure is at least at.
func (p *Process) Share(bound int64, at Pressure) int64 {
	if p.is(at) {
		return bound / reliefShare
	}
	return bound
}

func (p *Process) is(at Pressure) bool { return p.Pressure() >= at }
