// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// asked is an API server that serves empty lists and records the requested paths.
type asked struct {
	mu    sync.Mutex
	paths map[string]struct{}
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("watch") != "" {
		if query.Get("sendInitialEvents") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	a.mu.Lock()
	if a.paths == nil {
		a.paths = map[string]struct{}{}
	}
	a.paths[r.URL.Path+" "+query.Get("labelSelector")+" "+query.Get("fieldSelector")] = struct{}{}
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`))
}

func (a *asked) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.paths))
}

// clusterOf returns a cluster whose API server is a handler.
func clusterOf(t *testing.T, handler http.Handler) *kube.Cluster {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	c, err := kube.FromConfig(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFactory_waitForSyncSkipsWhatIsNotLeased(t *testing.T) {
	f := watershed.NewFactory(clusterOf(t, new(asked)), &watershed.FactoryOptions{StopIdle: time.Hour})
	before, err := watershed.Shared[*corev1.Pod](f, nil)
	if err != nil {
		t.Fatal(err)
	}
	before.Close()
	waits := make(chan error, 1)
	during, err := watershed.Shared(f, &watershed.SharedOptions[*corev1.Pod]{Namespace: "during"})
	if err != nil {
		t.Fatal(err)
	}
	go func() { waits <- f.WaitForSync(t.Context()) }()
	during.Close()
	if err := <-waits; err != nil { // the factory does not even run
		t.Errorf("WaitForSync of a factory without leases: %v", err)
	}
	running(t, f.Run)
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Errorf("WaitForSync of a factory that runs without leases: %v", err)
	}
	again, err := watershed.Shared[*corev1.Pod](f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Error(err)
	}
	expect.Equal(t, again.HasSynced(), true)
}

func TestFactory_leaseOfEverything(t *testing.T) {
	server := new(asked)
	f := watershed.NewFactory(clusterOf(t, server), &watershed.FactoryOptions{
		Namespace: "shop", LabelSelector: "app=x", FieldSelector: "spec.nodeName=n",
	})
	for _, o := range []*watershed.SharedOptions[*corev1.Pod]{
		nil,
		{Namespace: watershed.Everything},
		{Namespace: "other", LabelSelector: watershed.Everything, FieldSelector: watershed.Everything},
	} {
		if _, err := watershed.Shared(f, o); err != nil {
			t.Fatal(err)
		}
	}
	running(t, f.Run)
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, server.take(), []string{
		"/api/v1/namespaces/other/pods  ", "/api/v1/namespaces/shop/pods app=x spec.nodeName=n",
		"/api/v1/pods app=x spec.nodeName=n",
	})
}

// TestRelease_closesHandlersAndIndexes has two leases of one copy. Releasing one
// removes only its own handlers and indexes.
func TestRelease_closesHandlersAndIndexes(t *testing.T) {
	f := watershed.NewFactory(clusterOf(t, new(asked)), nil)
	first, err := watershed.Shared(f, &watershed.SharedOptions[*corev1.Pod]{
		Mutated: func(string, *corev1.Pod, *corev1.Pod) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	second, err := watershed.Shared[*wire.Object](f, &watershed.SharedOptions[*wire.Object]{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"),
	})
	if err != nil {
		t.Fatal(err)
	}
	byNodeOfFirst := watershed.IndexBy(first, byNode)
	byName := watershed.IndexBy(second, func(o *wire.Object) []string { return []string{o.Name()} })
	closed := first.Handle(watershed.Handler[*corev1.Pod]{Name: "first"})
	stays := second.Handle(watershed.Handler[*wire.Object]{Name: "second"})
	running(t, f.Run)
	for _, r := range []*watershed.Registration{closed, stays} {
		if err := r.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first.Close()
	first.Close()
	<-closed.Done()
	handlers := second.Status().Handlers
	expect.Equal(t, len(handlers), 1)
	expect.Equal(t, handlers[0].Name, "second")
	pod, err := wire.Encode(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", ResourceVersion: "9"},
	}, wire.JSON, podKind)
	if err != nil {
		t.Fatal(err)
	}
	second.Write(delta.Delta[*wire.Object]{Type: delta.Added, Key: "shop/a", Object: pod, Version: 9})
	expect.Equal(t, slices.Collect(byName.Keys("a")), []string{"shop/a"})
	expect.Equal(t, watershed.Indexes(second.Informer), 1)
	byNodeOfFirst.Close() // has no effect
	second.Close()
	expect.Equal(t, watershed.Indexes(second.Informer), 0)
}

func TestShared_refusesWhatIsTheFactorys(t *testing.T) {
	f := watershed.NewFactory(&kube.Cluster{}, nil)
	lease := reflect.TypeFor[watershed.SharedOptions[*corev1.Pod]]()
	for _, name := range []string{
		"Tweak", "Drop", "TransformBytes", "Transform", "Memory", "Packing", "Tap", "Disk", "TransformName", "Stored",
		"Window",
		"Reflector", "Report", "Counters", "Batch", "Hooks", "Logger",
	} {
		if _, ok := lease.FieldByName(name); ok {
			t.Errorf("a lease can have its own %s", name)
		}
	}
	if _, err := watershed.Shared[*bytes.Buffer](f, nil); !errors.Is(err, watershed.ErrNoResource) {
		t.Errorf("error %v, want ErrNoResource", err)
	}
}

// TestRegistration_waitForSync waits for handlers that never sync.
func TestRegistration_waitForSync(t *testing.T) {
	s := newServer()
	s.put("shop/a", nil)
	pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	idle := pods.Handle(watershed.Handler[*corev1.Pod]{})
	if err := idle.WaitForSync(ended); err == nil || err.Error() != "enough" {
		t.Errorf("with a context that has ended: %v", err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	slow := pods.Handle(watershed.Handler[*corev1.Pod]{Add: func(*corev1.Pod, bool) { enter(); <-release }})
	closed := pods.Handle(watershed.Handler[*corev1.Pod]{})
	closed.Close()
	if err := closed.WaitForSync(t.Context()); !errors.Is(err, watershed.ErrStopped) {
		t.Errorf("of a handler that was closed: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = pods.Run(ctx) })
	if err := idle.WaitForSync(t.Context()); err != nil {
		t.Error(err)
	}
	<-entered
	// Between two runs WaitForSync waits for the next one, so it must have begun before
	// this one ends.
	waiting, waits := make(chan struct{}), make(chan error)
	begun := sync.OnceFunc(func() { close(waiting) })
	go func() { waits <- slow.WaitForSync(awaited{t.Context(), begun}) }()
	<-waiting
	stop()
	if err := <-waits; !errors.Is(err, watershed.ErrStopped) {
		t.Errorf("of a handler whose run ended: %v", err)
	}
	close(release)
	wg.Wait()
}

// awaited is a context that calls a function when its channel is waited for.
type awaited struct {
	context.Context
	call func()
}

func (a awaited) Done() <-chan struct{} {
	a.call()
	return a.Context.Done()
}

func TestStatus_isReadable(t *testing.T) {
	s := newServer()
	s.put("shop/a", nil)
	pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	r := pods.Handle(watershed.Handler[*corev1.Pod]{Name: "mine", Add: func(*corev1.Pod, bool) { panic("mine") }})
	expect.Equal(t, pods.Status().String(),
		`idle, 0 objects at version 0, not synced; handler "mine": 0 behind, 0 delivered, not synced`)
	running(t, pods.Run)
	<-r.Synced()
	status := pods.Status()
	status.Handlers[0].BusySince = time.Time{}
	status.Reflector.State = reflector.Waiting
	status.Reflector.StaleSince = time.Now().Add(-time.Minute)
	status.Reflector.Err, status.Reflector.ErrAt, status.Reflector.Failures = errors.New("refused"),
		time.Now().Add(-time.Hour), 2
	expect.Equal(t, status.String(),
		`waiting, 1 objects at version 101, stale for 1m0s, 2 failures, last error 1h0m0s ago: refused; `+
			`handler "mine": 0 behind, 0 delivered, 1 panics`)
}
