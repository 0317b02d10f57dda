// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	selectable "github.com/watershed-project/watershed/internal/fields"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// selection is the selection of a watcher.
type selection struct{ namespace, labels, fields string }

func (s selection) String() string {
	return fmt.Sprintf("%q -l %q --field-selector %q", s.namespace, s.labels, s.fields)
}

func newTestMatcher(t testing.TB, s selection, set *selectable.Set) *Matcher {
	t.Helper()
	opts := &internalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie(s.fields)}
	var err error
	if opts.LabelSelector, err = labels.Parse(s.labels); err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(NewValues(1<<20), opts, Target{Namespace: s.namespace, Namespaced: true}, set)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// state is an object for the naive filter: its labels and all selectable fields.
type state struct {
	object *wire.Object
	labels labels.Set
	fields fields.Set
}

// selected is the naive filter.
func (s selection) selected(x *state) bool {
	if x == nil || s.namespace != "" && x.fields["metadata.namespace"] != s.namespace {
		return false
	}
	selector, err := labels.Parse(s.labels)
	return err == nil && selector.Matches(x.labels) && fields.ParseSelectorOrDie(s.fields).Matches(x.fields)
}

// event returns the event that a watcher receives for a change according to the naive
// filter, "" for none.
func (s selection) event(old, now *state, c *store.Change[*wire.Object]) string {
	was, is := s.selected(old), s.selected(now)
	switch {
	case was && is:
		return describe(stream.Modified, now.object, 0)
	case is:
		return describe(stream.Added, now.object, 0)
	case was && now == nil:
		return describe(stream.Deleted, c.New, 0)
	case was:
		return describe(stream.Deleted, old.object, c.Version)
	}
	return ""
}

func describe(t stream.EventType, o *wire.Object, version uint64) string {
	return fmt.Sprintf("%s %s@%d as %d", t, o.Key(), o.Version(), version)
}

// resourceKind makes random states of a kind, and selections of it.
type resourceKind struct {
	name    string
	set     *selectable.Set
	make    func(t testing.TB, rng *rand.Rand, namespace, name string, version uint64) *state
	choices []string // field selectors; %d is a small number
}

func podState(t testing.TB, rng *rand.Rand, e wire.Encoding, namespace, name string, version uint64) *state {
	t.Helper()
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       namespace,
			Name:            name,
			ResourceVersion: strconv.FormatUint(version, 10),
			Labels:          randomLabels(rng),
		},
	}
	if n := rng.IntN(5); n > 0 {
		p.Spec.NodeName = fmt.Sprint("node-", n)
	}
	p.Spec.HostNetwork = rng.IntN(2) == 0
	p.Status.Phase = []corev1.PodPhase{"", corev1.PodRunning, corev1.PodFailed}[rng.IntN(3)]
	o, err := wire.Encode(p, e, kind)
	if err != nil {
		t.Fatal(err)
	}
	return &state{o, p.Labels, fields.Set{
		"metadata.name": name, "metadata.namespace": namespace, "spec.nodeName": p.Spec.NodeName,
		"status.phase": string(p.Status.Phase), "spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork),
	}}
}

func randomLabels(rng *rand.Rand) map[string]string {
	all := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if n := rng.IntN(5); n > 0 {
			all[key] = fmt.Sprint("v", n)
		}
	}
	return all
}

func widgetState(t testing.TB, rng *rand.Rand, namespace, name string, version uint64) *state {
	t.Helper()
	spec, size, label := "", "", randomLabels(rng)
	if n := rng.IntN(5); n > 0 {
		size = strconv.Itoa(n - 1)
		spec = `,"spec":{"text":"x","size":` + size + `}`
	}
	o, err := wire.NewObject(fmt.Appendf(nil,
		`{"apiVersion":"e.x/v1","kind":"Widget","metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"app":%q}}%s}`,
		name, namespace, version, label["app"], spec), wire.JSON, &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "e.x", Version: "v1", Kind: "Widget"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &state{
		o,
		labels.Set{"app": label["app"]},
		fields.Set{"metadata.name": name, "metadata.namespace": namespace, "spec.size": size},
	}
}

func resourceKinds(t testing.TB) []resourceKind {
	custom, err := selectable.Custom(true, []string{".spec.size"})
	if err != nil {
		t.Fatal(err)
	}
	pods := selectable.For(corev1.SchemeGroupVersion.WithKind("Pod"))
	choices := []string{
		"", "spec.nodeName=node-%d", "spec.nodeName=node-%d,metadata.namespace=ns-1", "spec.nodeName=",
		"spec.nodeName!=node-%d",
		"metadata.name=p-%d", "metadata.name=p-%d,metadata.namespace=ns-2", "metadata.namespace=ns-1",
		"status.phase=Running",
		"status.phase=,spec.nodeName=node-%d", "spec.hostNetwork=false", "spec.hostNetwork=true,status.phase!=Failed",
		"metadata.name=p-%d,spec.nodeName=node-2",
	}
	kinds := []resourceKind{
		{
			"widgets", custom, widgetState, []string{
				"", "spec.size=%d", "spec.size=0", "spec.size=", "spec.size=%d,metadata.name=p-2", "spec.size!=%d",
			},
		},
	}
	for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
		kinds = append(kinds, resourceKind{"pods in " + e.String(), pods,
			func(t testing.TB, rng *rand.Rand, namespace, name string, version uint64) *state {
				return podState(t, rng, e, namespace, name, version)
			}, choices})
	}
	return kinds
}

func randomSelection(rng *rand.Rand, k *resourceKind) selection {
	s := selection{
		namespace: []string{"", "", "ns-1", "ns-2"}[rng.IntN(4)],
		labels: []string{
			"", "", "", "app=v1", "app in (v1,v2)", "app", "!app", "app!=v1", "app=v2,tier=v1",
		}[rng.IntN(9)],
	}
	s.fields = k.choose(rng, rng.IntN(len(k.choices)))
	return s
}

// choose returns one of the choices with a number.
func (k *resourceKind) choose(rng *rand.Rand, i int) string {
	if !strings.Contains(k.choices[i], "%d") {
		return k.choices[i]
	}
	return fmt.Sprintf(k.choices[i], 1+rng.IntN(4))
}

// happening is a change with the states for the naive filter.
type happening struct {
	change   store.Change[*wire.Object]
	old, now *state
}

func randomHistory(t testing.TB, rng *rand.Rand, k *resourceKind, n int) []happening {
	states := map[string]*state{}
	all := make([]happening, n)
	for i := range all {
		namespace, name, version := fmt.Sprint("ns-", 1+rng.IntN(3)), fmt.Sprint("p-", 1+rng.IntN(5)), uint64(100+i)
		x := k.make(t, rng, namespace, name, version)
		key := x.object.Key()
		h := happening{old: states[key], now: x}
		h.change = store.Change[*wire.Object]{
			Type: delta.Updated, Key: key, New: x.object, Revision: uint64(i + 1), Version: version,
		}
		switch {
		case h.old == nil:
			h.change.Type = delta.Added
		case rng.IntN(4) == 0:
			h.change.Type, h.now = delta.Deleted, nil
		}
		if h.old != nil {
			h.change.Old = h.old.object
		}
		if states[key] = h.now; h.now == nil {
			delete(states, key)
		}
		all[i] = h
	}
	return all
}

// TestMatcher_getsWhatANaiveFilterGives publishes random histories to watchers of random
// selections that begin at random times and positions. Each waits for changes that
// concern it, and receives exactly the events that it would receive by looking at every
// change.
func TestMatcher_getsWhatANaiveFilterGives(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, k := range resourceKinds(t) {
		t.Run(k.name, func(t *testing.T) {
			events := 0
			for run := range uint64(3) {
				rng := rand.New(rand.NewPCG(seed, run))
				events += watchHistory(t, rng, &k)
				if t.Failed() {
					t.Fatalf("in run %d of seed %d", run, seed)
				}
			}
			if events < 300 {
				t.Errorf("only %d events", events)
			}
		})
	}
}

func watchHistory(t *testing.T, rng *rand.Rand, k *resourceKind) (events int) {
	all := randomHistory(t, rng, k, 150)
	l := fanout.New(objectlog.Options(0))
	var watching sync.WaitGroup
	var mu sync.Mutex
	watch := func(s selection, from int) {
		m := newTestMatcher(t, s, k.set)
		c, err := l.Cursor(uint64(from), m.interest())
		if err != nil {
			t.Fatal(err)
		}
		watching.Go(func() {
			var got, want []string
			for batch, err := c.Next(context.Background()); err == nil; batch, err = c.Next(context.Background()) {
				for i := range batch {
					if e := m.event(&batch[i]); e.Type != 0 {
						got = append(got, describe(e.Type, e.Object, e.Version))
					}
				}
			}
			for i := range all[from:] {
				h := &all[from+i]
				if h.now != nil && m.Matches(h.now.object) != s.selected(h.now) {
					t.Errorf("a list of %v has %v: %t", s, h.now.object, !s.selected(h.now))
				}
				if e := s.event(h.old, h.now, &h.change); e != "" {
					want = append(want, e)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if events += len(got); !slices.Equal(got, want) {
				t.Errorf("watcher of %v from %d on, which waits for %v, got\n%q, want\n%q", s, from, m.interest(), got,
					want)
			}
		})
	}
	begun := len(k.choices)
	for i := range k.choices {
		watch(selection{fields: k.choose(rng, i)}, 0)
	}
	for i := 0; i < len(all); {
		if rng.IntN(4) == 0 {
			watch(randomSelection(rng, k), rng.IntN(i+1))
			begun++
		}
		n := 1
		if rng.IntN(4) == 0 {
			n = min(1+rng.IntN(80), len(all)-i)
		}
		for wait := rng.IntN(5) > 0; wait && l.Stats().Waiting < begun; {
			runtime.Gosched() // so that most changes find all watchers waiting
		}
		var batch []store.Change[*wire.Object]
		for _, h := range all[i : i+n] {
			batch = append(batch, h.change)
		}
		l.Publish(batch)
		i += n
	}
	l.Close()
	watching.Wait()
	return events
}

func TestMatcher_waitsForTheNarrowestRequirement(t *testing.T) {
	pods := selectable.For(corev1.SchemeGroupVersion.WithKind("Pod"))
	for _, c := range []struct {
		selection
		namespaced bool
		want       fanout.Interest
	}{
		{selection{}, true, fanout.Everything()},
		{selection{"n", "", ""}, true, fanout.Namespace("n")},
		{selection{"n", "app=x", ""}, true, fanout.In(objectlog.ByLabel, "app=x")},
		{selection{"n", "app=x", "spec.nodeName=a"}, true, objectlog.HasField("spec.nodeName", "a")},
		{selection{"", "", "spec.host=a"}, true, objectlog.HasField("spec.nodeName", "a")},
		{selection{"", "", "spec.nodeName!=a"}, true, fanout.Everything()},
		{selection{"", "", "status.podIP=10.0.0.1"}, true, fanout.Everything()},
		{selection{"n", "app=x", "spec.nodeName=a,metadata.name=b"}, true, fanout.Key("n/b")},
		{selection{"", "app=x", "metadata.name=b"}, false, fanout.Key("b")},
		{selection{"", "app=x", "metadata.name=b"}, true, objectlog.HasField("metadata.name", "b")},
		{selection{"", "", "metadata.name=b,metadata.namespace=n"}, true, fanout.Key("n/b")},
		{selection{"", "", "metadata.namespace=n"}, true, fanout.Namespace("n")},
		{selection{"", "", "status.phase=Running"}, true, objectlog.HasField("status.phase", "Running")},
		{selection{"n", "", "status.phase=Running"}, true, fanout.Namespace("n")},
		{selection{"", "app", "status.phase=Running"}, true, fanout.In(objectlog.ByLabel, "app")},
	} {
		m := newTestMatcher(t, c.selection, pods)
		m.namespaced = c.namespaced
		if got := m.interest(); got != c.want {
			t.Errorf("%v waits for %v, want %v", c.selection, got, c.want)
		}
	}
}
