// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

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
	// flappingLimit is the number of recent interruptions from which a cluster is
	// considered to be flapping.
	flappingLimit = 3
	// maxRemovals limits how many removals of types are remembered, and RemovalAge for how
	// long.
	maxRemovals = 16
	RemovalAge  = time.Hour
)

// Interruptions records when a member's copy was interrupted and became current again. All
// methods are safe for concurrent use.
type Interruptions struct {
	mu sync.Mutex
	// recoveries is the highest counter of the member's reflectors at the last call.
	recoveries uint64
	times      []time.Time
}

// Observe records an interruption if a reflector has recovered since the last call. All
// resources usually recover together, which counts once.
func (i *Interruptions) Observe(now time.Time, all []ResourceStatus) {
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

// Recent returns how many interruptions there were lately, and the time of the first.
func (i *Interruptions) Recent(now time.Time) (n int, first time.Time) {
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

// Removals are the resources that were removed lately, the oldest first.
type Removals []Removal

// Add records that a resource is not served any more.
func (all *Removals) Add(r schema.GroupResource) {
	all.Forget(r)
	*all = append(*all, Removal{r, time.Now()})
	*all = slices.Delete(*all, 0, max(0, len(*all)-maxRemovals))
}

// Forget forgets that a resource was removed: it has returned.
func (all *Removals) Forget(r schema.GroupResource) {
	*all = slices.DeleteFunc(*all, func(x Removal) bool { return x.Resource == r || time.Since(x.At) > RemovalAge })
}

// Recent returns the resources that were removed less than RemovalAge ago.
func (all Removals) Recent(now time.Time) (recent []Removal) {
	for _, r := range all {
		if now.Sub(r.At) < RemovalAge {
			recent = append(recent, r)
		}
	}
	return recent
}
