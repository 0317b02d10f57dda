// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package requestmetrics counts the requests to a server by their labels, measures how long they take,
// and counts, for each cluster, the requests that the copy answered instead of it. The labels are those
// of kube-apiserver's metrics. The caller decides which names of resources become labels, because
// clients can make up any.
//
// # Guarantees
//
// Counts of requests never decrease; [Cluster.Watches] is the number of open watches. No request is
// lost: one whose labels do not fit is counted as a request for [OtherResource].
//
// # What blocks
//
// Nothing waits for a client or the network. A request with labels that are not counted yet takes the
// lock for writing. Any other request costs about 300 ns: up to three read locks, three map lookups and
// four atomic additions.
//
// # Bounds and ownership
//
// There are at most 4,096 combinations of labels besides [OtherResource], of about 250 bytes each.
package requestmetrics

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/histogram"
)

const (
	// maxRequestLabels limits the combinations of labels that requests are counted by. More
	// are counted as requests for the resource OtherResource. One takes about 250 bytes.
	maxRequestLabels = 4096
	// OtherResource is the resource of requests for resources that no cluster has.
	OtherResource = "other"
)

// durationBounds are the buckets of durations.
var durationBounds = []time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 30 * time.Second,
}

// Labels are the labels by which requests are counted.
type Labels struct {
	Verb, Group, Version, Resource, Subresource string
	Scope                                       string
	Code                                        int
}

// Resource is a resource or a subresource that requests are counted by.
type Resource struct{ Group, Version, Resource, Subresource string }

// Requests counts the requests to a server. The zero value is ready to use. All methods are safe for concurrent use.
type Requests struct {
	// Expired counts the watches that ended with 410: the history has no complete changes
	// from the client's version on.
	Expired atomic.Uint64

	// mu guards the maps. Their values are modified without it.
	mu       sync.RWMutex
	requests map[Labels]*atomic.Uint64
	// Only the verb and the scope of the labels of durations are set.
	durations map[Labels]*histogram.Histogram
	// resources are the resources that are counted by name.
	resources map[Resource]struct{}
}

// Cluster counts the requests for one cluster. The zero value is ready to use.
type Cluster struct {
	// Passed counts requests that the cluster has answered, and Watches the watches that are open.
	Passed  atomic.Uint64
	Watches atomic.Int64
	// savedGets, savedLists and savedWatches count the requests that were answered from the copy.
	savedGets, savedLists, savedWatches atomic.Uint64
}

// Save counts a request of a verb that was answered from the copy, and that would otherwise have been n requests.
func (c *Cluster) Save(verb string, n int) {
	switch verb {
	case "GET":
		c.savedGets.Add(uint64(n))
	case "LIST":
		c.savedLists.Add(uint64(n))
	case "WATCH":
		c.savedWatches.Add(uint64(n))
	}
}

// Saved returns how many requests were answered from the copy, by verb.
func (c *Cluster) Saved() map[string]uint64 {
	return map[string]uint64{"GET": c.savedGets.Load(), "LIST": c.savedLists.Load(), "WATCH": c.savedWatches.Load()}
}

// Known reports whether a resource is counted by its name.
func (t *Requests) Known(r Resource) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.resources[r]
	return ok
}

// Admit makes a resource be counted by its name, unless there are too many.
func (t *Requests) Admit(r Resource) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.resources) >= maxRequestLabels || len(t.requests) >= maxRequestLabels {
		return false
	}
	if t.resources == nil {
		t.resources = map[Resource]struct{}{}
	}
	t.resources[r] = struct{}{}
	return true
}

// Count counts a request.
func (t *Requests) Count(l Labels) {
	t.mu.RLock()
	n := t.requests[l]
	t.mu.RUnlock()
	if n == nil {
		n = t.counter(l)
	}
	n.Add(1)
}

// counter returns the counter of labels, which it makes if there is room for it.
func (t *Requests) counter(l Labels) *atomic.Uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.requests == nil {
		t.requests = map[Labels]*atomic.Uint64{}
	}
	if len(t.requests) >= maxRequestLabels {
		// The verbs, scopes and codes of the rest are few.
		l = Labels{Verb: l.Verb, Resource: OtherResource, Scope: l.Scope, Code: l.Code}
	}
	if t.requests[l] == nil {
		t.requests[l] = new(atomic.Uint64)
	}
	return t.requests[l]
}

// Observe measures a request that took d. Only the verb and the scope of its labels are set.
func (t *Requests) Observe(l Labels, d time.Duration) { t.duration(l).Observe(d) }

// duration returns the histogram of labels. There are few of them.
func (t *Requests) duration(l Labels) *histogram.Histogram {
	t.mu.RLock()
	h := t.durations[l]
	t.mu.RUnlock()
	if h != nil {
		return h
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.durations == nil {
		t.durations = map[Labels]*histogram.Histogram{}
	}
	if t.durations[l] == nil {
		t.durations[l] = histogram.New(durationBounds)
	}
	return t.durations[l]
}

// Counts yields the number of requests with each combination of labels. The caller must not call other methods
// meanwhile.
func (t *Requests) Counts() iter.Seq2[Labels, uint64] {
	return func(yield func(Labels, uint64) bool) {
		t.mu.RLock()
		defer t.mu.RUnlock()
		for l, n := range t.requests {
			if !yield(l, n.Load()) {
				return
			}
		}
	}
}

// Durations yields how long the requests of each verb and scope took. The caller must not call other methods meanwhile.
func (t *Requests) Durations() iter.Seq2[Labels, histogram.Snapshot] {
	return func(yield func(Labels, histogram.Snapshot) bool) {
		t.mu.RLock()
		defer t.mu.RUnlock()
		for l, h := range t.durations {
			if !yield(l, h.Snapshot()) {
				return
			}
		}
	}
}
