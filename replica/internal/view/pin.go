// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

const (
	// pinTime is how long a state is kept after a page of it was read.
	pinTime = 2 * time.Minute
	// maxPins is how many states are kept. Each keeps what has changed since.
	maxPins = 32
)

// Pins keeps states of the fleet for the next pages of lists. The zero value is ready to
// use. All methods are safe for concurrent use.
type Pins struct {
	mu  sync.Mutex
	all []pin // oldest first
}

type pin struct {
	pinKey
	snapshot fleet.Snapshot[*wire.Object]
	at       time.Time
}

// pinKey identifies a state: a version of a resource, for the members that a caller sees.
type pinKey struct {
	resource schema.GroupVersionResource
	set      string
	version  uint64
}

// keep keeps a state.
func (p *Pins) keep(key pinKey, s fleet.Snapshot[*wire.Object]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(key)
	p.all = append(p.all, pin{key, s, time.Now()})
	if len(p.all) > maxPins {
		p.all = slices.Delete(p.all, 0, 1)
	}
}

// dropLocked drops states that are too old, and the one that is about to be kept again.
func (p *Pins) dropLocked(key pinKey) {
	p.all = slices.DeleteFunc(p.all, func(one pin) bool { return time.Since(one.at) > pinTime || one.pinKey == key })
}

// DropOld drops states that are too old.
func (p *Pins) DropOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(pinKey{})
}

// find returns a state that is kept.
func (p *Pins) find(key pinKey) (fleet.Snapshot[*wire.Object], bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.pinKey == key {
			return one.snapshot, true
		}
	}
	return fleet.Snapshot[*wire.Object]{}, false
}
