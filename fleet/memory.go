// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"strings"

	"github.com/watershed-project/watershed/fleet/internal/quota"
)

type (
	// Memory is how much memory a fleet may use: the pressure, and how many bytes lists may take.
	Memory = quota.Memory
	// Pressure is how scarce the memory of the process is. Each step includes those before it.
	Pressure = quota.Pressure
)

const (
	// PressureNone means that there is memory for everything in [Options].
	PressureNone = quota.PressureNone
	// PressureCaches keeps an eighth of [Options.Decoded].
	PressureCaches = quota.PressureCaches
	// PressureHistory keeps an eighth of [Options.History] and of the states for slow
	// readers. Readers that fall behind more than that receive differences, and watches of
	// feeds begin again.
	PressureHistory = quota.PressureHistory
	// PressureFull drops the resources of [Options.Expendable] and lists no further resource
	// that is not small, see Spare of [Memory]. They fail with an error that is [ErrLimit], and
	// are listed when there is room for them.
	PressureFull = quota.PressureFull
	// PressureCritical keeps no further object of a resource that is not small. A resource
	// that has a new object ceases to be read, as one that exceeds [Limits], and if it is being
	// listed for the first time its objects are dropped. Changes of objects that are kept still
	// arrive.
	PressureCritical = quota.PressureCritical
)

// Pressure returns the pressure that was set last.
func (f *Fleet) Pressure() Pressure { return f.settings.pressure.Pressure() }

// SetMemory makes the fleet use less memory, or as much as its options allow. The program
// calls it, because the fleet does not know what else needs memory. It is safe for concurrent
// use.
func (f *Fleet) SetMemory(m Memory) {
	p := &f.settings.pressure
	p.Set(m)
	f.recent.Resize(int(p.Share(int64(f.settings.Decoded), PressureCaches)))
	if m.Pressure >= PressureFull || p.Refused() {
		f.shed()
	}
}

// shed drops the expendable resources, once. They stay dropped until Reconfigure is called:
// if they came back as soon as there is room, they would be listed and dropped in turns.
func (f *Fleet) shed() {
	patterns := f.settings.tuned.Load().expendable
	if len(patterns) == 0 || !f.settings.pressure.Shed() {
		return
	}
	f.settings.Logger.Warn("memory is scarce: resources that are expendable are no longer mirrored, until the configuration changes", "resources", strings.Join(patterns, ","))
	f.retune()
}
