// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/wire"
)

func TestInformer_runsOnce(t *testing.T) {
	i := podInformer(podSource(t, labelled(pod("a", "1"), "x")), 0, cache.Indexers{"label": byLabel})
	r := join(t, i, &recorder{})
	if i.HasSynced() || i.IsStopped() || i.LastSyncResourceVersion() != "" {
		t.Error("it runs already")
	}
	stop := synced(t, i)
	expect.Soon(t, "the handler's sync", r.HasSynced)
	i.RunWithContext(t.Context()) // returns at once
	if got := i.LastSyncResourceVersion(); got != "1" {
		t.Errorf("the last version is %q, want 1", got)
	}
	stop()
	if !i.IsStopped() || !i.HasSynced() || !r.HasSynced() {
		t.Error("a stopped informer has stopped, and has synced before")
	}
	if got := i.LastSyncResourceVersion(); got != "1" {
		t.Errorf("after the end the last version is %q, want 1", got)
	}
	i.Run(nil) // returns at once: it cannot run again
	h := &recorder{}
	_, err := i.AddEventHandler(h)
	if want := fmt.Sprintf("handler %v was not added to shared informer because it has stopped already",
		h); err == nil || err.Error() != want {
		t.Errorf("a handler after the end: %v, want %s", err, want)
	}
	if err := i.RemoveEventHandler(r); err != nil {
		t.Error(err)
	}
}

func TestInformer_canBeReadAfterTheEnd(t *testing.T) {
	i := podInformer(podSource(t, labelled(pod("a", "1"), "x"), pod("b", "1")), 0,
		cache.Indexers{"label": byLabel, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	synced(t, i)()
	x := i.GetIndexer()
	expectNames(t, "List", x.List(), "a/1", "b/1")
	for index, value := range map[string]string{"label": "x", cache.NamespaceIndex: "a"} {
		objs, err := x.ByIndex(index, value)
		if err != nil {
			t.Fatal(err)
		}
		expectNames(t, index, objs, "a/1")
	}
	if err := x.Add(pod("c", "1")); err == nil {
		t.Error("it takes objects that it will not show")
	}
}

func TestInformer_stopsByItsChannel(t *testing.T) {
	i := podInformer(podSource(t), 0, nil)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		i.Run(stop)
	}()
	if !cache.WaitForCacheSync(t.Context().Done(), i.HasSynced) {
		t.Error("it did not sync")
	}
	c := i.GetController()
	c.Run(stop)
	c.RunWithContext(t.Context())
	if !c.HasSynced() || !cache.IsDone(c.HasSyncedChecker()) ||
		c.LastSyncResourceVersion() != i.LastSyncResourceVersion() {
		t.Error("the controller is not that of the informer")
	}
	close(stop)
	<-ended
}

func TestInformer_thatNeverSyncsStops(t *testing.T) {
	lists := atomic.Int32{}
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			lists.Add(1)
			return nil, errors.New("no")
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, errors.New("no")
		},
	}
	i := podInformer(source, 0, nil)
	r := join(t, i, &recorder{})
	stop := run(t, i)
	expect.Soon(t, "a list that fails", func() bool { return lists.Load() > 0 })
	stop()
	if i.HasSynced() || r.HasSynced() {
		t.Error("it has synced")
	}
}

func TestTransform(t *testing.T) {
	source := podSource(t, pod("a", "1"), pod("a", "bad"), pod("a", "other"), pod("a", "nothing"), pod("a", "panics"))
	i := podInformer(source, 0, cache.Indexers{"label": byLabel})
	calls := atomic.Int32{}
	if err := i.SetTransform(func(obj any) (any, error) {
		calls.Add(1)
		p := obj.(*corev1.Pod)
		switch p.Name {
		case "bad":
			return nil, errors.New("no")
		case "other":
			return &corev1.ConfigMap{ObjectMeta: p.ObjectMeta}, nil // its bytes would be a valid pod, too
		case "nothing":
			return nil, nil
		case "panics":
			panic("no")
		}
		p.Labels = map[string]string{"label": "t" + p.Labels["label"]}
		return p, nil
	}); err != nil {
		t.Fatal(err)
	}
	j := &recorder{}
	synced(t, i, join(t, i, j))
	j.expect(t, "add a/1=t true")
	source.Modify(labelled(pod("a", "1"), "x"))
	j.expect(t, "update a/1=t a/1=tx")
	if n := calls.Load(); n != 6 {
		t.Errorf("it was called %d times for 6 states", n)
	}
	objs, err := i.GetIndexer().ByIndex("label", "x")
	if err != nil {
		t.Fatal(err)
	}
	expectNames(t, "index of what was transformed", objs, "a/1")
	expectNames(t, "what is left", i.GetStore().List(), "a/1")
	if err := i.SetTransform(nil); err == nil || err.Error() != "informer has already started" {
		t.Errorf("SetTransform after the start: %v", err)
	}
}

func TestWatchErrorHandler(t *testing.T) {
	source := podSource(t, pod("a", "1"))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	source.ListError = forbidden
	i := podInformer(source, 0, nil)
	failures := make(chan error, 100)
	if err := i.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(context.Background(), r, err)
		if r.Name() == "" || r.TypeDescription() != "*v1.Pod" {
			t.Errorf("the reflector is %q of %q", r.Name(), r.TypeDescription())
		}
		failures <- err
	}); err != nil {
		t.Fatal(err)
	}
	run(t, i)
	if err := <-failures; !apierrors.IsForbidden(err) {
		t.Errorf("the handler received %v", err)
	}
	if err := i.SetWatchErrorHandler(nil); err == nil || err.Error() != "informer has already started" {
		t.Errorf("SetWatchErrorHandler after the start: %v", err)
	}
}

// TestWatchErrorHandler_asClientGos checks which errors reach the handler, for the first
// attempt each.
func TestWatchErrorHandler_asClientGos(t *testing.T) {
	unauthorized := apierrors.NewUnauthorized("no")
	for _, c := range []struct {
		name        string
		list, watch error
		want        bool
	}{
		{"list", unauthorized, nil, true},
		{"list, plain", errors.New("no"), nil, true},
		{"watch", nil, unauthorized, true},
		{"watch, plain", nil, errors.New("no"), true},
		{"watch of an old version", nil, apierrors.NewResourceExpired("no"), true},
		{"watch while the server is busy", nil, apierrors.NewTooManyRequestsError("no"), false},
		{"nothing", nil, nil, false},
	} {
		for _, ours := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, ours %v", c.name, ours), func(t *testing.T) {
				t.Parallel()
				first := make(chan struct{}, 100)
				lw := listOnly{&cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, c.list
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						defer func() { first <- struct{}{} }()
						return watch.NewFake(), c.watch
					},
				}}
				i := podInformer(lw, 0, nil)
				if !ours {
					i = cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, nil)
				}
				failures := make(chan error, 100)
				if err := i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
					failures <- err
				}); err != nil {
					t.Fatal(err)
				}
				stop := run(t, i)
				if c.want {
					if err := <-failures; c.list != nil && !errors.Is(err, c.list) ||
						c.watch != nil && !errors.Is(err, c.watch) {
						t.Errorf("the handler received %v", err)
					}
					return
				}
				<-first
				stop()
				select {
				case err := <-failures:
					t.Errorf("the handler received %v", err)
				default:
				}
			})
		}
	}
}

// listOnly is a ListerWatcher that does not stream its state.
type listOnly struct{ *cache.ListWatch }

func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

// widget is a user's own type, in no scheme, that embeds a type with protobuf methods.
type widget struct {
	corev1.ConfigMap
	Size int `json:"size"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	return &widget{ConfigMap: *w.DeepCopy(), Size: w.Size}
}

func TestInformer_typeOfSomebodysOwn(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	known := runtime.NewScheme()
	known.AddKnownTypeWithName(gvk, &widget{})
	named := &widget{}
	named.SetGroupVersionKind(gvk)
	for name, c := range map[string]struct {
		opts          compat.Options
		example, item *widget
		want          schema.GroupVersionKind
	}{
		"unknown":          {compat.Options{}, &widget{}, &widget{}, schema.GroupVersionKind{}},
		"the scheme knows": {compat.Options{Scheme: known, KeepKind: true}, &widget{}, &widget{}, gvk},
		"the example says": {compat.Options{KeepKind: true}, named, &widget{}, gvk},
		"it is not kept":   {compat.Options{Scheme: known}, named, &widget{}, schema.GroupVersionKind{}},
		"the object says":  {compat.Options{}, &widget{}, named, gvk},
	} {
		t.Run(name, func(t *testing.T) {
			item := c.item.DeepCopyObject().(*widget)
			item.Name, item.Size = "w", 7
			source := podSource(t)
			source.Add(item)
			c.opts.Logger = quiet.Logger
			i := compat.NewInformer(&c.opts)(source, c.example, 0, nil)
			synced(t, i)
			list := i.GetIndexer().List()
			if len(list) != 1 {
				t.Fatalf("it has %v", list)
			}
			got := list[0].(*widget)
			if got.Name != "w" || got.Size != 7 || got.GroupVersionKind() != c.want {
				t.Errorf("it has %+v, want kind %v", got, c.want)
			}
		})
	}
}

// TestInformer_withoutAnExample checks that objects of any type are kept, as in
// client-go.
func TestInformer_withoutAnExample(t *testing.T) {
	source := podSource(t)
	source.Add(pod("a", "pod"))
	source.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	source.Add(&widget{ConfigMap: corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "widget"}}, Size: 7})
	i := compat.NewInformer(quiet)(source, nil, 0, nil)
	synced(t, i)
	var types []string
	for _, obj := range i.GetStore().List() {
		types = append(types, fmt.Sprintf("%T", obj))
	}
	if want := []string{"*v1.Pod", "*v1.Node", "*compat_test.widget"}; !slices.Equal(types, want) {
		t.Errorf("it has %q, want %q", types, want)
	}
}

func TestInformer_leavesOutWhatIsOfAnotherType(t *testing.T) {
	source := podSource(t, pod("a", "1"))
	source.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	i := podInformer(source, 0, nil)
	synced(t, i)
	source.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}})
	// This deletion is of another object with the same key.
	source.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "1"}})
	source.Add(pod("a", "2"))
	expect.Soon(t, "the second pod", func() bool { return len(i.GetStore().ListKeys()) == 2 })
	if got := strings.Join(i.GetStore().ListKeys(), " "); got != "a/1 a/2" {
		t.Errorf("it has %s", got)
	}
}

// TestInformer_fakeThatCannotStreamIsListedAtOnce checks that there is no delay before
// the list.
func TestInformer_fakeThatCannotStreamIsListedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := podInformer(podSource(t, pod("a", "1")), 0, nil)
		began := time.Now()
		stop := synced(t, i)
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		stop()
	})
}

func TestOptions_drop(t *testing.T) {
	p := pod("a", "1")
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	for drop, want := range map[wire.Fields]int{0: 1, wire.ManagedFields: 0} {
		opts := *quiet
		opts.Drop = drop
		i := compat.NewInformer(&opts)(podSource(t, p.DeepCopy()), &corev1.Pod{}, 0, nil)
		synced(t, i)
		if got := i.GetStore().List()[0].(*corev1.Pod).ManagedFields; len(got) != want {
			t.Errorf("with %v dropped it has %v", drop, got)
		}
	}
}
