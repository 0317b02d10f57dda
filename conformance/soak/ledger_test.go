// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// maxFaults is how many faults a ledger reports.
const maxFaults = 5

// ledger is the handler of an informer. It checks that the events are a possible history:
// objects are added before they change, and versions increase.
type ledger struct {
	// relisted reports whether the informer may have listed again. Then the final state
	// of an object that was deleted meanwhile is not known, and an unchanged object may
	// be reported again.
	relisted func() bool

	mu sync.Mutex
	// known is the version of each existing object.
	known map[string]uint64
	// last is the last version that was reported of each object, including deleted ones.
	last   map[string]uint64
	counts counts
	faults []string
}

// counts are the numbers of events.
type counts struct{ adds, updates, again, deletes, unknown, faults int }

func (c *counts) plus(o counts) {
	c.adds += o.adds
	c.updates += o.updates
	c.again += o.again
	c.deletes += o.deletes
	c.unknown += o.unknown
	c.faults += o.faults
}

func newLedger(relisted func() bool) *ledger {
	return &ledger{relisted: relisted, known: map[string]uint64{}, last: map[string]uint64{}}
}

// identify returns an object's key and version.
func identify(obj any) (string, uint64, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return "", 0, fmt.Errorf("%T: %w", obj, err)
	}
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return cache.MetaObjectToName(o).String(), version, err
}

// fault records a fault. The caller holds the lock.
func (l *ledger) fault(format string, args ...any) {
	if l.counts.faults++; len(l.faults) < maxFaults {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// OnAdd implements [cache.ResourceEventHandler].
func (l *ledger) OnAdd(obj any, _ bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.adds++
	key, version, err := identify(obj)
	had, there := l.known[key]
	switch {
	case err != nil:
		l.fault("add: %v", err)
	case there:
		l.fault("%s is added at %d, and was there at %d", key, version, had)
	case version <= l.last[key]:
		l.fault("%s is added at %d, and was gone at %d", key, version, l.last[key])
	}
	l.known[key], l.last[key] = version, version
}

// OnUpdate implements [cache.ResourceEventHandler].
func (l *ledger) OnUpdate(before, obj any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.updates++
	key, version, err := identify(obj)
	_, from, _ := identify(before)
	had, there := l.known[key]
	switch {
	case err != nil:
		l.fault("update: %v", err)
	case !there:
		l.fault("%s is updated to %d, and was not there", key, version)
	case from != had:
		l.fault("%s is updated from %d to %d, and was at %d", key, from, version, had)
	case version == had && l.relisted():
		l.counts.again++
	case version <= had:
		l.fault("%s is updated from %d to %d", key, had, version)
	}
	l.known[key], l.last[key] = version, version
}

// OnDelete implements [cache.ResourceEventHandler].
func (l *ledger) OnDelete(obj any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.deletes++
	final, missed := obj.(cache.DeletedFinalStateUnknown)
	if missed {
		l.counts.unknown++
		obj = final.Obj
	}
	key, version, err := identify(obj)
	had, there := l.known[key]
	switch {
	case err != nil:
		l.fault("delete: %v", err)
	case !there:
		l.fault("%s is deleted at %d, and was not there", key, version)
	case missed && !l.relisted():
		l.fault("%s is gone after %d, and nobody has said so", key, had)
	case missed && version != had:
		l.fault("%s is gone after %d, and was at %d", key, version, had)
	case !missed && version <= had:
		l.fault("%s is deleted at %d, and was at %d", key, version, had)
	}
	delete(l.known, key)
	l.last[key] = max(version, l.last[key])
}

// versions returns the versions of all existing objects.
func (l *ledger) versions() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	copied := make(map[string]uint64, len(l.known))
	for key, version := range l.known {
		copied[key] = version
	}
	return copied
}

func (l *ledger) report() (counts, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts, slices.Clone(l.faults)
}

func TestLedger(t *testing.T) {
	at := func(version int) any {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: strconv.Itoa(version)},
		}
	}
	gone := func(version int) any { return cache.DeletedFinalStateUnknown{Key: "a/b", Obj: at(version)} }
	add := func(version int) func(*ledger) { return func(l *ledger) { l.OnAdd(at(version), false) } }
	update := func(from, to int) func(*ledger) { return func(l *ledger) { l.OnUpdate(at(from), at(to)) } }
	del := func(obj any) func(*ledger) { return func(l *ledger) { l.OnDelete(obj) } }
	for name, c := range map[string]struct {
		relisted bool
		steps    []func(*ledger)
		fault    string
	}{
		"a life":                {false, []func(*ledger){add(1), update(1, 2), del(at(3)), add(4), del(at(5))}, ""},
		"a relist":              {true, []func(*ledger){add(1), update(1, 1), del(gone(1)), add(4)}, ""},
		"added twice":           {true, []func(*ledger){add(1), add(2)}, "was there at 1"},
		"added before its end":  {true, []func(*ledger){add(1), del(at(5)), add(4)}, "was gone at 5"},
		"updated without":       {true, []func(*ledger){update(1, 2)}, "was not there"},
		"updated from another":  {true, []func(*ledger){add(1), update(2, 3)}, "was at 1"},
		"updated back":          {true, []func(*ledger){add(2), update(2, 1)}, "updated from 2 to 1"},
		"updated to the same":   {false, []func(*ledger){add(2), update(2, 2)}, "updated from 2 to 2"},
		"deleted without":       {true, []func(*ledger){del(at(1))}, "was not there"},
		"deleted in its past":   {true, []func(*ledger){add(2), del(at(2))}, "was at 2"},
		"gone without a word":   {false, []func(*ledger){add(2), del(gone(2))}, "nobody has said so"},
		"gone in another state": {true, []func(*ledger){add(2), del(gone(1))}, "was at 2"},
	} {
		l := newLedger(func() bool { return c.relisted })
		for _, step := range c.steps {
			step(l)
		}
		_, faults := l.report()
		if c.fault == "" && len(faults) > 0 ||
			c.fault != "" && (len(faults) != 1 || !strings.Contains(faults[0], c.fault)) {
			t.Errorf("%s: %q, want %q", name, faults, c.fault)
		}
	}
}
