// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	framework "k8s.io/client-go/tools/cache/testing"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the time limit for anything that should be immediate, on a machine that is
// busy with other tests.
const patience = time.Minute

// quiet is for informers whose errors the test causes itself.
var quiet = &compat.Options{Logger: slog.New(slog.DiscardHandler)}

// podSource returns client-go's fake server with pods, for the duration of the test.
func podSource(t *testing.T, pods ...*corev1.Pod) *framework.FakeControllerSource {
	t.Helper()
	s := framework.NewFakeControllerSource()
	// Not s.Shutdown, which makes every later call wait for ever: a stopped informer may have left one.
	t.Cleanup(func() { s.Broadcaster.Shutdown() })
	for _, p := range pods {
		s.Add(p)
	}
	return s
}

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func labelled(p *corev1.Pod, value string) *corev1.Pod {
	p.Labels = map[string]string{"label": value}
	return p
}

// podInformer returns an informer of pods that is not running yet.
func podInformer(lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return compat.NewInformer(quiet)(lw, &corev1.Pod{}, resync, indexers)
}

// run runs an informer until the returned function is called, at the latest until the end
// of the test.
func run(t *testing.T, i cache.SharedIndexInformer) func() {
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

// synced runs an informer and returns when it and the handlers have synced. Later events
// are new to them.
func synced(t *testing.T, i cache.SharedIndexInformer, handlers ...cache.ResourceEventHandlerRegistration) func() {
	t.Helper()
	stop := run(t, i)
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
}

func (j *recorder) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *recorder) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func describe(obj any) string {
	m := obj.(metav1.Object)
	key, _ := cache.MetaNamespaceKeyFunc(obj)
	if l := m.GetLabels()["label"]; l != "" {
		key += "=" + l
	}
	return key
}

func (j *recorder) OnAdd(obj any, initial bool) { j.note("add %s %v", describe(obj), initial) }
func (j *recorder) OnUpdate(old, now any)       { j.note("update %s %s", describe(old), describe(now)) }
func (j *recorder) OnDelete(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		j.note("missed %s %s", d.Key, describe(d.Obj))
		return
	}
	j.note("delete %s", describe(obj))
}

// expect waits until exactly these lines have been recorded, and clears them.
func (j *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	expect.Soon(t, fmt.Sprintf("%q", want), func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.lines) >= len(want)
	})
	if got := j.take(); !slices.Equal(got, want) {
		t.Fatalf("received\n%q, want\n%q", got, want)
	}
}

// join adds a handler, which must succeed.
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

// names returns the keys of objects in their order.
func names[T any](objs []T) []string {
	out := []string{}
	for _, obj := range objs {
		key, err := cache.MetaNamespaceKeyFunc(any(obj).(runtime.Object))
		if err != nil {
			key = err.Error()
		}
		out = append(out, key)
	}
	return out
}
