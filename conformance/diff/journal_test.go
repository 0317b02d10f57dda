// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
)

// entry is a delta in the order of arrival, which client-go's queue does not keep, with
// the version that ours must assign to it.
type entry struct {
	delta.Delta[*pod]
	// initial means that it was queued with the first complete list.
	initial bool
}

// journal records the changes of an operation to client-go's queue: the deltas are
// client-go's, and their order within one operation is that of the contract. first means
// that the operation was the first complete list.
func (q *queues) journal(before map[string]cache.Deltas, list []*pod, version uint64, first bool) {
	grown := map[string]delta.Deltas[*pod]{}
	after := queuedDeltas(q.theirs)
	for key, ds := range after {
		was, now := len(before[key]), convert(key, ds)
		if was == len(now) {
			q.journalMerge(now.Newest())
			continue
		}
		grown[key] = now[was:]
	}
	next := func(key string) {
		if ds := grown[key]; len(ds) > 0 {
			d := ds[0]
			d.Version = podVersion(d.Object)
			if d.Missed {
				d.Version = version
			}
			q.log = append(q.log, entry{Delta: d})
			grown[key] = ds[1:]
		}
	}
	for _, p := range list {
		next(podKey(p))
	}
	keys := make([]string, 0, len(grown))
	for key := range grown {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		next(key)
	}
	if first {
		for i := range q.log {
			q.log[i].initial = true
		}
	}
}

// journalMerge records that the newest delta of a key was replaced, because an observed
// deletion took the place of an inferred one.
func (q *queues) journalMerge(d delta.Delta[*pod]) {
	for i := len(q.log) - 1; i >= 0; i-- {
		if e := &q.log[i]; e.Key == d.Key {
			if e.Missed && !d.Missed {
				d.Version = podVersion(d.Object)
				e.Delta = d
			}
			return
		}
	}
}
