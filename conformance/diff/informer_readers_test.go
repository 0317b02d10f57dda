// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
)

// state returns a pod as text: two pods that differ in anything that the model changes
// have different texts.
func state(p *corev1.Pod) string {
	if p == nil {
		return "nil"
	}
	var b strings.Builder
	for _, word := range []string{
		keyOf(p), "@", p.ResourceVersion, " ", string(p.UID), " app=", p.Labels["app"], " tier=", p.Labels["tier"],
		" on ", p.Spec.NodeName, " ", string(p.Status.Phase), " ", p.Annotations["noise"], p.Annotations["transformed"],
	} {
		b.WriteString(word)
	}
	return b.String()
}

// call is one call of a handler.
type call struct {
	op       string // add, update, delete
	key      string
	old, now string // states; a deletion has the last one as now
	// flag is the initial flag of an addition, or whether a deletion was seen.
	flag bool
}

func (c call) String() string {
	switch c.op {
	case "add":
		return fmt.Sprintf("add %s (initial %v)", c.now, c.flag)
	case "delete":
		return fmt.Sprintf("delete %s (seen %v)", c.now, c.flag)
	default:
		return fmt.Sprintf("update %s to %s", c.old, c.now)
	}
}

// reader records the calls of one handler.
type reader struct {
	// our means that the stricter rules for ours apply: older states never arrive, and
	// only a resync repeats a state.
	our bool

	// mu guards the fields below.
	mu sync.Mutex
	// calls are the calls since the last take.
	calls []call
	// knows has the objects that were added and not deleted.
	knows map[string]known
	// again counts, by key, updates to the same state since the last take.
	again map[string]int
	// wrong is the first call that was inconsistent with earlier ones.
	wrong string
}

// known is a reader's state of an object.
type known struct {
	text    string
	version int
}

func newReader(our bool) *reader {
	return &reader{our: our, knows: map[string]known{}, again: map[string]int{}}
}

func versionOf(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.ResourceVersion)
	if err != nil {
		panic(err)
	}
	return n
}

func (r *reader) complain(format string, args ...any) {
	if r.wrong == "" {
		r.wrong = fmt.Sprintf(format, args...)
	}
}

// typed records an object of ours without its kind, or one of client-go's that has it.
func (r *reader) typed(p *corev1.Pod) {
	if said := p.APIVersion == "v1" && p.Kind == "Pod"; said != r.our {
		r.complain("%s has type %q %q", keyOf(p), p.APIVersion, p.Kind)
	}
}

func (r *reader) add(p *corev1.Pod, initial bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typed(p)
	c := call{op: "add", key: keyOf(p), now: state(p), flag: initial}
	if k, ok := r.knows[c.key]; ok {
		r.complain("%v, which is known as %s", c, k.text)
	}
	r.knows[c.key] = known{c.now, versionOf(p)}
	r.calls = append(r.calls, c)
}

func (r *reader) update(old, now *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typed(now)
	c := call{op: "update", key: keyOf(now), old: state(old), now: state(now)}
	k, ok := r.knows[c.key]
	if !ok || k.text != c.old {
		r.complain("%v, which is known as %q", c, k.text)
	}
	if c.old == c.now {
		r.again[c.key]++
		return
	}
	if r.our && versionOf(now) <= k.version {
		r.complain("%v goes back", c)
	}
	r.knows[c.key] = known{c.now, versionOf(now)}
	r.calls = append(r.calls, c)
}

func (r *reader) remove(last *corev1.Pod, seen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typed(last)
	c := call{op: "delete", key: keyOf(last), now: state(last), flag: seen}
	switch k, ok := r.knows[c.key]; {
	case !ok && r.our:
		r.complain("%v, which is not known", c)
	case !ok:
		return // TestDifference_deletionOfTheUnknown
	case !seen && k.text != c.now:
		r.complain("%v, which is known as %q", c, k.text)
	}
	delete(r.knows, c.key)
	r.calls = append(r.calls, c)
}

// take returns the calls since the last take, and the repeated states.
func (r *reader) take() ([]call, map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls, again := r.calls, r.again
	r.calls, r.again = nil, map[string]int{}
	return calls, again
}

func (r *reader) known() map[string]known {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.knows)
}

// OnAdd and the others implement client-go's handler.
func (r *reader) OnAdd(obj any, initial bool) { r.add(obj.(*corev1.Pod), initial) }

func (r *reader) OnUpdate(old, now any) { r.update(old.(*corev1.Pod), now.(*corev1.Pod)) }

func (r *reader) OnDelete(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.remove(d.Obj.(*corev1.Pod), false)
		return
	}
	r.remove(obj.(*corev1.Pod), true)
}

// handler returns a handler of ours.
func (r *reader) handler(resync time.Duration) watershed.Handler[*corev1.Pod] {
	return watershed.Handler[*corev1.Pod]{
		Name: "reader", Add: r.add, Update: r.update, Delete: r.remove, Resync: resync,
	}
}

// read runs a loop over our changes.
func (r *reader) read(ctx context.Context, i *watershed.Informer[*corev1.Pod]) {
	for c := range i.Watch(ctx) {
		now, err := c.New()
		if err != nil {
			panic(err)
		}
		switch c.Type {
		case delta.Added:
			r.add(now, c.Initial)
		case delta.Deleted:
			r.remove(now, !c.Missed)
		default:
			old, err := c.Old()
			if err != nil {
				panic(err)
			}
			r.update(old, now)
		}
	}
}

// The ways to compare two lists of calls.

// inOrder returns the calls in their order.
func inOrder(calls []call) string {
	words := make([]string, len(calls))
	for i, c := range calls {
		words[i] = c.String()
	}
	return strings.Join(words, "; ")
}

// byObject keeps the order only for each object.
func byObject(calls []call) string {
	sorted := slices.Clone(calls)
	slices.SortStableFunc(sorted, func(a, b call) int { return strings.Compare(a.key, b.key) })
	return inOrder(sorted)
}
