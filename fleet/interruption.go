// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// interruptionAge is how long an interruption counts as recent.
	interruptionAge = 10 * time.Minute
	// maxInterruptions limits how many of them are remembered.
	maxInterruptions = 64
	// FlappingLimit is the number of recent interruptions from which a cluster is
	// considered to be flapping.
	FlappingLimit = 3
	// maxRemovals limits how many removals of types are remembered, and removalAge for how
	// long.
	maxRemovals = 16
	removalAge  = time.Hour
)

// interruptions records when a member's copy was interrupted and became current again. All
// methods are safe for concurrent use.
type interruptions struct {
	mu sync.Mutex
	// recoveries is the highest counter of the member's reflectors at the last call.
	recoveries uint64
	times      []time.Time
}

// observe records an interruption if a reflector has recovered since the last call. All
// resources usually recover together, which counts once.
func (i *interruptions) observe(now time.Time, all []ResourceStatus) {
	most := uint64(0)
	for _, r := range all {
		most = max(most, r.Reflector.Recoveries)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for range min(max(most, i.recoveries)-i.recoveries, maxInterruptions) {
		i.times = append(i.times, now)
	}
	i.recoveries = most
	i.times = slices.Delete(i.times, 0, max(0, len(i.times)-maxInterruptions))
}

// recent returns how many interruptions there were lately, and the time of the first.
func (i *interruptions) recent(now time.Time) (n int, first time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.IndexFunc(i.times, func(t time.Time) bool { return now.Sub(t) < interruptionAge })
	if at < 0 {
		return 0, time.Time{}
	}
	return len(i.times) - at, i.times[at]
}

// Removal is a resource that was mirrored and that the cluster has ceased to serve.
type Removal struct {
	Resource schema.GroupResource
	At       time.Time
}

// removedLocked records that a resource is not served any more.
func (m *Member) removedLocked(r schema.GroupResource) {
	m.returnedLocked(r)
	m.removals = append(m.removals, Removal{r, time.Now()})
	m.removals = slices.Delete(m.removals, 0, max(0, len(m.removals)-maxRemovals))
}

// returnedLocked forgets that a resource was removed.
func (m *Member) returnedLocked(r schema.GroupResource) {
	m.removals = slices.DeleteFunc(m.removals, func(x Removal) bool { return x.Resource == r || time.Since(x.At) > removalAge })
}
