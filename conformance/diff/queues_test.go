// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// queueKeys are few, so that each has many operations.
var queueKeys = []string{"a/1", "a/2", "ab/1", "b/1", "c"}

// queuePods are pods to look up by key.
var queuePods = func() (pods []*pod) {
	for _, key := range queueKeys {
		pods = append(pods, newPod(key, 0))
	}
	return pods
}()

// queues is a queue of each side. Each has a store of its own side, which its consumer
// fills and which the queue may know.
type queues struct {
	*sequence
	ctx context.Context
	// known means that the queues know the stores.
	known     bool
	ours      *delta.FIFO[*pod]
	ourStore  *store.Store[*pod]
	theirs    *cache.DeltaFIFO
	theirKeys orderedStore
	// strict means that the transform refuses some objects.
	strict bool
	// value is the value of the last pod.
	value int
	// log has the queued deltas, in the order of arrival; see journal.
	log []entry
}

func newQueues(s *sequence, known bool, sameVersion func(old, now *pod) bool) *queues {
	q := &queues{
		sequence:  s,
		ctx:       context.Background(),
		known:     known,
		ourStore:  store.New(podKey, &store.Options[*pod]{Same: sameVersion}),
		theirKeys: orderedStore{cache.NewStore(storeKeyFunc)},
	}
	ours := &delta.Options[*pod]{Version: podVersion}
	theirs := cache.DeltaFIFOOptions{KeyFunction: podKeyFunc, EmitDeltaTypeReplaced: true}
	if known {
		ours.Known, theirs.KnownObjects = q.ourStore, q.theirKeys
	}
	mode := s.IntN(3)
	if mode > 0 {
		q.strict = mode == 2
		change := transform(q.strict)
		ours.Transform = change
		theirs.Transformer = func(obj any) (any, error) { return change(obj.(*pod)) }
	}
	q.ours, q.theirs = delta.New(podKey, ours), cache.NewDeltaFIFOWithOptions(theirs)
	s.step("new queues: known objects %v, transform %d (2 refuses every seventh value)", known, mode)
	if known && s.chance(4) {
		// This is the state after a restart of the queue alone.
		p, r := q.pod("a/1"), q.pod("b/1")
		s.step("stores have %v and %v already", p, r)
		for _, p := range []*pod{p, r} {
			s.check("error", kind(q.ourStore.Put(p)), kind(q.theirKeys.Add(p)))
		}
	}
	return q
}

// pod returns a new state of the object with the key.
func (q *queues) pod(key string) *pod {
	q.value++
	return newPod(key, q.value)
}

func (q *queues) anyPod() *pod { return q.pod(queueKeys[q.IntN(len(queueKeys))]) }

// list returns a new state of some objects, sometimes with one of them twice or with one
// that has no key.
func (q *queues) list() []*pod {
	var list []*pod
	some := q.IntN(1 << len(queueKeys))
	for _, n := range q.Perm(len(queueKeys)) {
		if some>>n&1 == 1 {
			list = append(list, q.pod(queueKeys[n]))
		}
	}
	if q.chance(6) {
		list = append(list, q.anyPod())
	}
	if q.chance(12) {
		list = slices.Insert(list, q.IntN(len(list)+1), q.pod(""))
	}
	return list
}

// produce applies one random operation of a producer to both sides.
func (q *queues) produce() {
	before := maps.Clone(queuedDeltas(q.theirs))
	first := false // this is the first complete list
	var ours, theirs error
	var list []*pod
	var version uint64
	switch op := q.IntN(20); {
	case op < 5:
		p := q.maybeKeyless()
		q.step("Add %v", p)
		ours, theirs = q.ours.Add(q.ctx, p), q.theirs.Add(p)
	case op < 10:
		p := q.maybeKeyless()
		q.step("Update %v", p)
		ours, theirs = q.ours.Update(q.ctx, p), q.theirs.Update(p)
	case op < 16:
		p := q.maybeKeyless()
		for q.refuses(p) { // see TestDifference_refusedDeletion
			p = q.pod(podKey(p))
		}
		q.step("Delete %v", p)
		ours, theirs = q.ours.Delete(q.ctx, p), q.theirs.Delete(p)
	case op < 19:
		list = q.list()
		q.value++
		version = uint64(q.value)
		q.step("Replace %v at version %d", list, version)
		first = !populated(q.theirs)
		ours, theirs = q.ours.Replace(q.ctx, list, version), q.theirs.Replace(anyOf(list), "")
		first = first && theirs == nil
	default:
		q.step("Resync")
		ours, theirs = q.ours.Resync(q.ctx), q.theirs.Resync()
	}
	q.check("error", kind(ours), kind(theirs))
	q.journal(before, list, version, first)
	q.compare()
}

// refuses reports whether the transform refuses a pod.
func (q *queues) refuses(p *pod) bool { return q.strict && p.Value%7 == 0 }

// maybeKeyless returns a pod, rarely without a key. The first pod always has one: see
// TestDifference_refusedAddIsNoPopulation.
func (q *queues) maybeKeyless() *pod {
	if q.chance(40) && populated(q.theirs) {
		return q.pod("")
	}
	return q.anyPod()
}

// pop takes one group from both sides and applies it to their stores, unless
// the process function is to fail.
func (q *queues) pop(fail bool) {
	if len(queuedKeys(q.theirs)) == 0 {
		return
	}
	q.step("Pop (process fails: %v)", fail)
	key := queuedKeys(q.theirs)[0]
	var ours, theirs string
	ourErr := q.ours.Pop(q.ctx, func(ds delta.Deltas[*pod], initial bool) error {
		ours = show(ds) + " initial " + strconv.FormatBool(initial)
		if fail {
			return errProcess
		}
		q.ourStore.Apply(ds)
		return nil
	})
	_, theirErr := q.theirs.Pop(func(obj any, initial bool) error {
		theirs = show(convert(key, obj.(cache.Deltas))) + " initial " + strconv.FormatBool(initial)
		if fail {
			return errProcess
		}
		return process(cache.ResourceEventHandlerFuncs{}, q.theirKeys, obj.(cache.Deltas), initial)
	})
	q.check("popped", ours, theirs)
	q.check("error", kind(ourErr), kind(theirErr))
	q.log = slices.DeleteFunc(q.log, func(e entry) bool { return e.Key == key })
	q.compare()
	q.compareStores()
}

func (q *queues) compareStores() {
	q.check("stores", lines(content(q.ourStore.Snapshot())), sortedLines(podsOf(q.theirKeys.List())))
}

// compare compares all observable state of both queues.
func (q *queues) compare() {
	keys, items := queuedKeys(q.theirs), queuedDeltas(q.theirs)
	q.check("ListKeys", strings.Join(q.ours.ListKeys(), " "), strings.Join(keys, " "))
	var newest []*pod
	total := 0
	for _, key := range keys {
		theirs := convert(key, items[key])
		ours, ok := q.ours.GetByKey(key)
		if !ok {
			q.check("GetByKey "+key, "nothing", show(theirs))
		}
		q.check("GetByKey "+key, show(ours), show(theirs))
		newest = append(newest, theirs.Newest().Object)
		total += len(theirs)
	}
	q.check("List", lines(q.ours.List()), lines(newest))
	q.check("Len", strconv.Itoa(q.ours.Len()), strconv.Itoa(total))
	for i, key := range queueKeys {
		_, ours := q.ours.Get(queuePods[i])
		_, theirs := items[key]
		q.check("Get "+key, strconv.FormatBool(ours), strconv.FormatBool(theirs))
	}
	q.check("HasSynced", strconv.FormatBool(q.ours.HasSynced()), strconv.FormatBool(q.theirs.HasSynced()))
}

func content(s *store.Snapshot[*pod]) []*pod {
	pods := make([]*pod, 0, s.Len())
	for _, p := range s.All() {
		pods = append(pods, p)
	}
	return pods
}
