// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "strings"

// Pressure returns the pressure that was set last.
func (f *Fleet) Pressure() Pressure { return Pressure(f.settings.pressure.now.Load()) }

// SetMemory makes the fleet use less memory, or as much as its options allow. The program
// calls it, because the fleet does not know what else needs memory. It is safe for concurrent
// use.
func (f *Fleet) SetMemory(m Memory) {
	p := &f.settings.pressure
	p.set(m)
	f.recent.Resize(int(p.share(int64(f.settings.Decoded), PressureCaches)))
	if m.Pressure >= PressureFull || p.refused.Load() {
		f.shed()
	}
}

// shed drops the expendable resources, once. They stay dropped until Reconfigure is called:
// if they came back as soon as there is room, they would be listed and dropped in turns.
func (f *Fleet) shed() {
	patterns := f.settings.tuned.Load().expendable
	if len(patterns) == 0 || f.settings.pressure.shed.Swap(true) {
		return
	}
	f.settings.Logger.Warn("memory is scarce: resources that are expendable are no longer mirrored, until the configuration changes", "resources", strings.Join(patterns, ","))
	f.retune()
}
