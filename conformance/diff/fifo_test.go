// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"strconv"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
)

// TestFIFO takes from both queues key by key.
func TestFIFO(t *testing.T) {
	playAll(t, 7000, func(s *sequence) {
		q := newQueues(s, !s.chance(4), nil)
		for range 10 + s.IntN(50) {
			switch {
			case !s.chance(3):
				q.produce()
			default:
				q.pop(s.chance(10))
			}
		}
		for len(queuedKeys(q.theirs)) > 0 {
			q.pop(false)
		}
	})
}

// TestDrain takes all from ours at once, and from client-go's key by key until it is
// empty: per key both return the same, and over all keys ours returns the order of
// arrival.
func TestDrain(t *testing.T) {
	playAll(t, 5000, func(s *sequence) {
		q := newQueues(s, !s.chance(4), nil)
		for range 10 + s.IntN(50) {
			switch {
			case !s.chance(3):
				q.produce()
			case s.chance(3):
				q.pop(s.chance(10))
			default:
				q.drain()
			}
		}
		q.drain()
	})
}

func (q *queues) drain() {
	if len(queuedKeys(q.theirs)) == 0 {
		return
	}
	q.step("Drain")
	type flagged struct {
		delta.Delta[*pod]
		initial bool
	}
	var ours []flagged
	err := q.ours.Drain(q.ctx, func(ds delta.Deltas[*pod], initial bool) error {
		for _, d := range ds {
			// client-go's queue has no bookmarks.
			if d.Type != delta.Bookmark {
				ours = append(ours, flagged{d, initial})
			}
		}
		q.ourStore.Apply(ds)
		return nil
	})
	q.check("error", kind(err), kind(nil))

	ourKeys, ourFlag := map[string]delta.Deltas[*pod]{}, map[string]bool{}
	for i, d := range ours {
		if _, ok := ourFlag[d.Key]; !ok {
			ourFlag[d.Key] = d.initial
		}
		ourKeys[d.Key] = append(ourKeys[d.Key], d.Delta)
		if i < len(q.log) {
			e := q.log[i]
			what := "drained " + strconv.Itoa(i) + ", against the journal"
			q.check(what, showFull(d.Delta, d.initial), showFull(e.Delta, e.initial || !populated(q.theirs)))
		}
	}
	q.check("drained deltas", strconv.Itoa(len(ours)), strconv.Itoa(len(q.log)))
	for len(queuedKeys(q.theirs)) > 0 {
		key := queuedKeys(q.theirs)[0]
		_, err := q.theirs.Pop(func(obj any, initial bool) error {
			ds := obj.(cache.Deltas)
			q.check("drained "+key, show(ourKeys[key]), show(convert(key, ds)))
			// The flag of a key's first delta; for those that arrived after the list see
			// TestDifference_initialPerDelta.
			q.check("initial "+key, strconv.FormatBool(ourFlag[key]), strconv.FormatBool(initial))
			return process(cache.ResourceEventHandlerFuncs{}, q.theirKeys, ds, initial)
		})
		q.check("error", kind(nil), kind(err))
	}
	q.log = nil
	q.compare()
	q.compareStores()
}

func showFull(d delta.Delta[*pod], initial bool) string {
	return show(delta.Deltas[*pod]{d}) + "version " + strconv.FormatUint(d.Version, 10) + ", initial " +
		strconv.FormatBool(initial)
}
