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
	resource schema.GroupVersionResource
	snapshot fleet.Snapshot[*wire.Object]
	at       time.Time
}

// keep keeps a state.
func (p *Pins) keep(r schema.GroupVersionResource, s fleet.Snapshot[*wire.Object]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(r, s.Revision())
	p.all = append(p.all, pin{r, s, time.Now()})
	if len(p.all) > maxPins {
		p.all = slices.Delete(p.all, 0, 1)
	}
}

// dropLocked drops states that are too old, and the one that is about to be kept again.
func (p *Pins) dropLocked(r schema.GroupVersionResource, revision uint64) {
	p.all = slices.DeleteFunc(p.all, func(one pin) bool {
		return time.Since(one.at) > pinTime || one.resource == r && one.snapshot.Revision() == revision
	})
}

// DropOld drops states that are too old.
func (p *Pins) DropOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(schema.GroupVersionResource{}, 0)
}

// find returns a state that is kept.
func (p *Pins) find(r schema.GroupVersionResource, revision uint64) (fleet.Snapshot[*wire.Object], bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.resource == r && one.snapshot.Revision() == revision {
			return one.snapshot, true
		}
	}
	return fleet.Snapshot[*wire.Object]{}, false
}
