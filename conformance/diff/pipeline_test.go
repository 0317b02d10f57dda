// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// trace has the events of each object, oldest first.
type trace map[string][]string

func (t trace) note(key, format string, args ...any) {
	t[key] = append(t[key], fmt.Sprintf(format, args...))
}

// recorder is a handler of client-go's that writes a trace.
type recorder struct {
	trace
	state cache.Store
	// same drops updates to the same version, as [store.Options.Same] does.
	same func(old, now *pod) bool
	// sync means that the delta being processed is a Sync, which Same does not drop.
	sync bool
}

func (r *recorder) OnAdd(obj any, _ bool) { r.note(podKey(obj.(*pod)), "add %v", obj) }

func (r *recorder) OnUpdate(old, now any) {
	if r.same == nil || r.sync || !r.same(old.(*pod), now.(*pod)) {
		r.note(podKey(now.(*pod)), "update %v to %v", old, now)
	}
}

func (r *recorder) OnDelete(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.note(d.Key, "delete %v (missed)", d.Obj)
		return
	}
	r.note(podKey(obj.(*pod)), "delete %v", obj)
}

// source is the state of a server: pods are created, changed and deleted in it. Most
// changes are reported to the queues at once, some only with the next list.
type source struct {
	*queues
	pods map[string]*pod
	// complete means that no report is ever lost.
	complete bool
}

// TestPipeline sends the changes of a source through queue and store into events, on both
// sides: each object has the same events, and in the end both have the state of the
// source, except for objects that a transform refused.
func TestPipeline(t *testing.T) {
	playAll(t, 6000, func(s *sequence) {
		var same func(old, now *pod) bool
		if s.chance(2) {
			same = func(old, now *pod) bool { return old.Value == now.Value }
		}
		src := &source{queues: newQueues(s, true, same), pods: map[string]*pod{}, complete: s.chance(3)}
		ours, theirs := trace{}, &recorder{trace: trace{}, state: src.theirKeys, same: same}
		if !s.chance(4) {
			src.relist()
		}
		for range 10 + s.IntN(50) {
			switch op := s.IntN(10); {
			case op < 6:
				src.change()
			case op < 7:
				src.relist()
			case op < 8:
				src.step("Resync")
				src.check("error", kind(src.ours.Resync(src.ctx)), kind(src.theirs.Resync()))
			default:
				src.consume(ours, theirs)
			}
		}
		src.relist()
		src.consume(ours, theirs)
		if !src.strict {
			var keys, want []string
			for _, key := range queueKeys {
				if p, ok := src.pods[key]; ok {
					want = append(want, fmt.Sprint(key, p.Value))
				}
			}
			for _, p := range content(src.ourStore.Snapshot()) {
				keys = append(keys, fmt.Sprint(podKey(p), p.Value))
			}
			src.check("the source's state", strings.Join(keys, " "), strings.Join(want, " "))
		}
	})
}

// change creates, changes or deletes one pod of the source.
func (src *source) change() {
	p := src.anyPod()
	key := podKey(p)
	lost := !src.complete && src.chance(6)
	_, exists := src.pods[key]
	switch {
	case exists && src.chance(3):
		for src.refuses(p) { // see TestDifference_refusedDeletion
			p = src.pod(key)
		}
		delete(src.pods, key)
		src.step("the source deletes %v (lost: %v)", p, lost)
		if !lost {
			src.check("error", kind(src.ours.Delete(src.ctx, p)), kind(src.theirs.Delete(p)))
		}
	case exists:
		src.pods[key] = p
		src.step("the source updates %v (lost: %v)", p, lost)
		if !lost {
			src.check("error", kind(src.ours.Update(src.ctx, p)), kind(src.theirs.Update(p)))
		}
	default:
		src.pods[key] = p
		src.step("the source adds %v (lost: %v)", p, lost)
		if !lost {
			src.check("error", kind(src.ours.Add(src.ctx, p)), kind(src.theirs.Add(p)))
		}
	}
}

func (src *source) relist() {
	var list []*pod
	for _, key := range queueKeys {
		if p, ok := src.pods[key]; ok {
			list = append(list, p)
		}
	}
	src.step("the source lists %v", list)
	src.check("error", kind(src.ours.Replace(src.ctx, list, 0)), kind(src.theirs.Replace(anyOf(list), "")))
}

// consume empties both queues into their stores and compares the results.
func (src *source) consume(ours trace, theirs *recorder) {
	src.step("consume")
	if len(queuedKeys(src.theirs)) > 0 {
		err := src.ours.Drain(src.ctx, func(ds delta.Deltas[*pod], _ bool) error {
			for _, c := range src.ourStore.Apply(ds) {
				noteChange(ours, c)
			}
			return nil
		})
		src.check("error", kind(err), kind(nil))
	}
	for len(queuedKeys(src.theirs)) > 0 {
		_, err := src.theirs.Pop(func(obj any, initial bool) error {
			for _, d := range obj.(cache.Deltas) {
				theirs.sync = d.Type == cache.Sync
				if err := process(theirs, theirs.state, cache.Deltas{d}, initial); err != nil {
					return err
				}
			}
			return nil
		})
		src.check("error", kind(nil), kind(err))
	}
	src.check("left", strconv.Itoa(src.ours.Len()), "0")
	for _, key := range queueKeys {
		src.check("what happened to "+key, strings.Join(ours[key], "; "), strings.Join(theirs.trace[key], "; "))
	}
	src.compareStores()
}

// noteChange records a change as recorder does. A Sync is client-go's update from a state
// to itself.
func noteChange(t trace, c store.Change[*pod]) {
	switch {
	case c.Type == delta.Added:
		t.note(c.Key, "add %v", c.New)
	case c.Type == delta.Deleted && c.Missed:
		t.note(c.Key, "delete %v (missed)", c.New)
	case c.Type == delta.Deleted:
		t.note(c.Key, "delete %v", c.New)
	default:
		t.note(c.Key, "update %v to %v", c.Old, c.New)
	}
}
