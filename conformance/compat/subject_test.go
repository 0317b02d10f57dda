// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	framework "k8s.io/client-go/tools/cache/testing"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

// patience is the timeout for operations that normally take no time, on a machine that is
// busy with other tests.
const patience = time.Minute

// constructor makes an informer.
type constructor func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

func (c constructor) pods(lw cache.ListerWatcher) cache.SharedIndexInformer {
	return c(lw, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

var (
	theirs constructor = cache.NewSharedIndexInformer
	ours   constructor = compat.NewInformer(&compat.Options{Logger: slog.New(slog.DiscardHandler)})
	fast   constructor = compat.NewInformer(&compat.Options{Logger: slog.New(slog.DiscardHandler), Fast: true})
)

// both runs one body with each subject.
func both(t *testing.T, body func(t *testing.T, subject constructor)) {
	t.Helper()
	for _, s := range []struct {
		name    string
		subject constructor
	}{{"client-go", theirs}, {"ours", ours}, {"ours, fast", fast}} {
		t.Run(s.name, func(t *testing.T) { body(t, s.subject) })
	}
}

// newSource returns a server for the duration of the test.
func newSource(t *testing.T, pods ...*corev1.Pod) *framework.FakeControllerSource {
	t.Helper()
	s := framework.NewFakeControllerSource()
	// Not s.Shutdown, which makes every later call wait for ever: a stopped informer may have left one.
	t.Cleanup(func() { s.Broadcaster.Shutdown() })
	// The source reports version 0, that of an empty list, as expired once there is a change.
	// Informers that watch late would list again, and miss changes that tests expect.
	if len(pods) == 0 {
		s.Add(pod("before", ""))
		s.Delete(pod("before", ""))
	}
	for _, p := range pods {
		s.Add(p)
	}
	return s
}

// pod returns a pod with a label, unless that is "".
func pod(name, label string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	if label != "" {
		p.Labels = map[string]string{"label": label}
	}
	return p
}

// start runs an informer until the returned function is called, at the latest
// until the end of the test.
func start(t *testing.T, i cache.SharedIndexInformer) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { i.RunWithContext(ctx) })
	stop := func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// synced starts an informer and waits until it and its handlers have synced: later calls
// are changes.
func synced(t *testing.T, i cache.SharedIndexInformer, handlers ...cache.ResourceEventHandlerRegistration) func() {
	t.Helper()
	stop := start(t, i)
	expect.Soon(t, "sync", i.HasSynced)
	for _, r := range handlers {
		expect.Soon(t, "a handler's sync", r.HasSynced)
	}
	return stop
}

// recorder is a handler that records its calls.
type recorder struct {
	mu    sync.Mutex
	lines []string
	// state is the state that follows from the calls.
	state map[string]string
}

func text(obj any) (name, label string) {
	p := obj.(*corev1.Pod)
	return p.Name, p.Labels["label"]
}

func (w *recorder) note(name, label string, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, strings.TrimSpace(line))
	if w.state == nil {
		w.state = map[string]string{}
	}
	if w.state[name] = label; strings.HasPrefix(line, "delete") || strings.HasPrefix(line, "missed") {
		delete(w.state, name)
	}
}

func (w *recorder) OnAdd(obj any, initial bool) {
	name, label := text(obj)
	w.note(name, label, fmt.Sprintf("add %s %s%s", name, label, map[bool]string{true: "*"}[initial]))
}

func (w *recorder) OnUpdate(old, now any) {
	name, label := text(now)
	_, was := text(old)
	w.note(name, label, fmt.Sprintf("update %s %s>%s", name, was, label))
}

func (w *recorder) OnDelete(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		name, label := text(d.Obj)
		w.note(name, label, fmt.Sprintf("missed %s %s", d.Key, label))
		return
	}
	name, label := text(obj)
	w.note(name, label, fmt.Sprintf("delete %s %s", name, label))
}

func (w *recorder) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lines)
}

// take returns the recorded calls, and clears them.
func (w *recorder) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// believes returns the content that the handler would have in its own store.
func (w *recorder) believes() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []string{}
	for name, label := range w.state {
		out = append(out, strings.TrimSuffix(name+"="+label, "="))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// expect waits until these lines were recorded, in any order if they are from a list, and
// clears them.
func (w *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	expect.Soon(t, fmt.Sprintf("%q", want), func() bool { return w.count() >= len(want) })
	got := w.take()
	if !slices.Equal(sortedCopy(got), sortedCopy(want)) {
		t.Fatalf("was told\n%q, want\n%q", got, want)
	}
}

func sortedCopy(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func join(
	t *testing.T, i cache.SharedIndexInformer, h cache.ResourceEventHandler,
) cache.ResourceEventHandlerRegistration {
	t.Helper()
	r, err := i.AddEventHandler(h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// has returns the content of a store.
func has(i cache.SharedIndexInformer) string {
	out := []string{}
	for _, obj := range i.GetStore().List() {
		name, label := text(obj)
		out = append(out, strings.TrimSuffix(name+"="+label, "="))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
