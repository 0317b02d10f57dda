// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestHandler_isToldOfWhatHappens(t *testing.T) {
	source := podSource(t, pod("a", "1"), labelled(pod("a", "2"), "x"))
	i := podInformer(source, 0, nil)
	early := &recorder{}
	r := join(t, i, early)
	if r.HasSynced() {
		t.Error("the handler has synced before the informer runs")
	}
	synced(t, i)
	early.expect(t, "add a/1 true", "add a/2=x true")
	expect.Soon(t, "the handler's sync", r.HasSynced)

	source.Add(pod("b", "1"))
	source.Modify(labelled(pod("a", "2"), "y"))
	source.Delete(pod("a", "1"))
	early.expect(t, "add b/1 false", "update a/2=x a/2=y", "delete a/1")

	late := &recorder{}
	expect.Soon(t, "the late handler's sync", join(t, i, late).HasSynced)
	late.expect(t, "add a/2=y true", "add b/1 true")
	source.Add(pod("c", "1"))
	early.expect(t, "add c/1 false")
	late.expect(t, "add c/1 false")
}

func TestHandler_deletionThatNobodySaw(t *testing.T) {
	source := podSource(t, pod("a", "1"), pod("a", "2"))
	i := podInformer(source, 0, nil)
	j := &recorder{}
	synced(t, i, join(t, i, j))
	j.expect(t, "add a/1 true", "add a/2 true")
	source.DeleteDropWatch(pod("a", "2"))
	source.ResetWatch()
	j.expect(t, "missed a/2 a/2")
}

func TestHandler_functionsThatAreNotThere(t *testing.T) {
	source := podSource(t, pod("a", "1"))
	for name, h := range map[string]cache.ResourceEventHandler{
		"funcs":             cache.ResourceEventHandlerFuncs{},
		"pointer to funcs":  &cache.ResourceEventHandlerFuncs{},
		"detailed":          cache.ResourceEventHandlerDetailedFuncs{},
		"pointer, detailed": &cache.ResourceEventHandlerDetailedFuncs{},
	} {
		t.Run(name, func(t *testing.T) {
			i := podInformer(source, 0, nil)
			r := join(t, i, h)
			synced(t, i)
			expect.Soon(t, "the handler's sync", r.HasSynced)
		})
	}
}

func TestHandler_functionsOneByOne(t *testing.T) {
	source := podSource(t, pod("a", "1"))
	i := podInformer(source, 0, nil)
	j := &recorder{}
	join(t, i, cache.ResourceEventHandlerDetailedFuncs{AddFunc: j.OnAdd})
	join(t, i, cache.ResourceEventHandlerFuncs{UpdateFunc: j.OnUpdate, DeleteFunc: j.OnDelete})
	synced(t, i)
	j.expect(t, "add a/1 true")
	source.Modify(labelled(pod("a", "1"), "x"))
	j.expect(t, "update a/1 a/1=x")
	source.Delete(labelled(pod("a", "1"), "x"))
	j.expect(t, "delete a/1=x")
}

func TestHandler_filtered(t *testing.T) {
	source := podSource(t, pod("a", "1"), labelled(pod("a", "2"), "x"))
	i := podInformer(source, 0, nil)
	j := &recorder{}
	join(t, i, cache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool { return obj.(*corev1.Pod).Labels["label"] == "x" },
		Handler:    j,
	})
	synced(t, i)
	j.expect(t, "add a/2=x true")
	source.Modify(labelled(pod("a", "1"), "x"))
	source.Modify(pod("a", "2"))
	j.expect(t, "add a/1=x false", "delete a/2=x")
}

func TestHandler_removed(t *testing.T) {
	source := podSource(t)
	i := podInformer(source, 0, nil)
	stays, goes := &recorder{}, &recorder{}
	other, r := join(t, i, stays), join(t, i, goes)
	stop := synced(t, i, other, r)
	source.Add(pod("a", "1"))
	stays.expect(t, "add a/1 false")
	goes.expect(t, "add a/1 false")
	for range 2 {
		if err := i.RemoveEventHandler(r); err != nil {
			t.Error(err)
		}
	}
	if err := cache.ShutDownEventHandler(i, r); err != nil {
		t.Error(err)
	}
	source.Add(pod("a", "2"))
	stays.expect(t, "add a/2 false")
	if calls := goes.take(); len(calls) > 0 {
		t.Errorf("after its removal it received %q", calls)
	}
	stop()
	if err := cache.ShutDownEventHandler(i, r); err != nil {
		t.Error(err)
	}
}

func TestHandler_thatWasNeverOurs(t *testing.T) {
	source := podSource(t)
	i, other := podInformer(source, 0, nil), podInformer(source, 0, nil)
	theirs, err := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil).AddEventHandler(&recorder{})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.RemoveEventHandler(theirs); err == nil || !strings.Contains(err.Error(), "invalid key type") {
		t.Errorf("a handle of client-go's: %v", err)
	}
	if err := i.RemoveEventHandler(nil); err == nil {
		t.Error("no handle is no error")
	}
	j := &recorder{}
	r := join(t, other, j)
	if err := i.RemoveEventHandler(r); err != nil {
		t.Errorf("another informer's handle: %v", err)
	}
	synced(t, other, r)
	source.Add(pod("a", "1"))
	j.expect(t, "add a/1 false")
}

func TestHandler_removesItself(t *testing.T) {
	source := podSource(t, pod("a", "1"), pod("a", "2"))
	i := podInformer(source, 0, nil)
	var r cache.ResourceEventHandlerRegistration
	calls := atomic.Int32{}
	r = join(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		calls.Add(1)
		if err := i.RemoveEventHandler(r); err != nil {
			t.Error(err)
		}
	}})
	synced(t, i)
	expect.Soon(t, "a call", func() bool { return calls.Load() > 0 })
	if err := cache.ShutDownEventHandler(i, r); err != nil {
		t.Error(err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("called %d times, and the first call removed it", n)
	}
}

// TestHandler_panicsAsWithClientGo checks that the panic handlers run, with the handler's
// logger, and that the handler is called again a second later.
func TestHandler_panicsAsWithClientGo(t *testing.T) {
	really, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	defer func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = really, handlers }()
	utilruntime.ReallyCrash = false
	for name, create := range map[string]func(cache.ListerWatcher, runtime.Object, time.Duration,
		cache.Indexers) cache.SharedIndexInformer{
		"client-go": cache.NewSharedIndexInformer, "ours": compat.NewInformer(nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &recorder{}
				utilruntime.PanicHandlers = []func(context.Context, any){func(ctx context.Context, value any) {
					j.note("panic %v", value)
					klog.FromContext(ctx).Info("notified")
				}}
				logger := funcr.New(func(_, args string) { j.note("log %s", args) }, funcr.Options{})
				i := create(podSource(t, pod("a", "1"), pod("a", "2")), &corev1.Pod{}, 0, nil)
				var last time.Time
				_, err := i.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
					j.note("after %v", time.Since(last))
					last = time.Now()
					panic("no")
				}}, cache.HandlerOptions{Logger: &logger})
				if err != nil {
					t.Fatal(err)
				}
				last = time.Now()
				stop := run(t, i)
				time.Sleep(2 * time.Second)
				stop()
				logged := []string{"panic no", `log "level"=0 "msg"="notified"`}
				if got, want := j.take(),
					append(append([]string{"after 0s"}, logged...),
						append([]string{"after 1s"}, logged...)...); !slices.Equal(got, want) {
					t.Errorf("noted\n%q, want\n%q", got, want)
				}
			})
		})
	}
}

// TestHandler_usesItsLogger checks that a handler logs to its own logger, or else to the
// informer's.
func TestHandler_usesItsLogger(t *testing.T) {
	j := &recorder{}
	logger := funcr.New(func(_, args string) { j.note("%s", args) }, funcr.Options{})
	i := podInformer(podSource(t), 0, nil)
	period := time.Minute
	if _, err := i.AddEventHandlerWithOptions(&recorder{},
		cache.HandlerOptions{Logger: &logger, ResyncPeriod: &period}); err != nil {
		t.Fatal(err)
	}
	if got := j.take(); len(got) != 1 || !strings.Contains(got[0], "does not resync") {
		t.Errorf("logged %q", got)
	}
}

func TestHandler_names(t *testing.T) {
	i := podInformer(podSource(t), 0, nil)
	r := join(t, i, &recorder{})
	if got, want := i.HasSyncedChecker().Name(), "SharedIndexInformer *v1.Pod"; got != want {
		t.Errorf("the informer is called %q, want %q", got, want)
	}
	if got, want := r.HasSyncedChecker().Name(),
		"SharedIndexInformer *v1.Pod + event handler *compat_test.recorder"; got != want {
		t.Errorf("the handler is called %q, want %q", got, want)
	}
	synced(t, i)
	if !cache.WaitFor(t.Context(), "", i.HasSyncedChecker(), r.HasSyncedChecker()) {
		t.Error("they did not sync")
	}
}

// TestResync_periods sets periods for the informer and the handler, and counts how often
// the handler receives its object again in a minute.
func TestResync_periods(t *testing.T) {
	const never = 0
	for _, c := range []struct {
		name                    string
		informer, handler, late time.Duration
		want, wantLate          int
	}{
		{"never", 0, 0, 0, never, never},
		{"an informer without a period has none", 0, 2 * time.Second, 2 * time.Second, never, never},
		{"a handler that wants none", 2 * time.Second, 0, 0, never, never},
		{"its own", 30 * time.Second, 5 * time.Second, 20 * time.Second, 12, 3},
		{"longer than the informer's", 5 * time.Second, 20 * time.Second, 20 * time.Second, 3, 3},
		{"at least a second", 30 * time.Second, time.Millisecond, never, 60, never},
		{"late ones not more often than the others", 30 * time.Second, 10 * time.Second, time.Second, 6, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := podSource(t, pod("a", "1"))
				i := podInformer(source, c.informer, nil)
				var early, late atomic.Int32
				count := func(n *atomic.Int32) cache.ResourceEventHandler {
					return cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
						if old != now {
							t.Error("a resync is of the same object")
						}
						n.Add(1)
					}}
				}
				if _, err := i.AddEventHandlerWithResyncPeriod(count(&early), c.handler); err != nil {
					t.Fatal(err)
				}
				stop := run(t, i)
				synctest.Wait()
				if _, err := i.AddEventHandlerWithOptions(count(&late),
					cache.HandlerOptions{ResyncPeriod: &c.late}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute + 100*time.Millisecond)
				stop()
				if got := fmt.Sprint(early.Load(), late.Load()); got != fmt.Sprint(c.want, c.wantLate) {
					t.Errorf("resyncs in a minute: %s, want %d %d", got, c.want, c.wantLate)
				}
			})
		})
	}
}

func TestResync_ofTheInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := podInformer(podSource(t, pod("a", "1")), 10*time.Second, nil)
		j := &recorder{}
		join(t, i, j)
		stop := run(t, i)
		time.Sleep(25 * time.Second)
		stop()
		j.expect(t, "add a/1 true", "update a/1 a/1", "update a/1 a/1")
	})
}

// TestHandler_modifiedObjectIsGoneWithTheNextState has a program that modifies an object of
// the cache, against the rules. The next state must be the server's.
func TestHandler_modifiedObjectIsGoneWithTheNextState(t *testing.T) {
	for name, newInformer := range map[string]func(cache.ListerWatcher) cache.SharedIndexInformer{
		"ours": func(lw cache.ListerWatcher) cache.SharedIndexInformer { return podInformer(lw, 0, nil) },
		"client-go": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("a", "1")
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			source := podSource(t, p)
			i := newInformer(source)
			j := &recorder{}
			synced(t, i, join(t, i, j))
			j.expect(t, "add a/1 true")
			modified := []any{}
			for _, label := range []string{"x", "y", "z"} {
				obj, _, err := i.GetStore().GetByKey("a/1")
				if err != nil {
					t.Fatal(err)
				}
				now := obj.(*corev1.Pod)
				if now.Spec.NodeSelector["disk"] != "ssd" {
					t.Errorf("before %s: the node selector is %v", label, now.Spec.NodeSelector)
				}
				now.Spec.NodeSelector["disk"] = "modified"
				modified = append(modified, obj) // it is not freed
				was := describe(now)
				source.Modify(labelled(p.DeepCopy(), label))
				j.expect(t, fmt.Sprintf("update %s a/1=%s", was, label))
			}
			goruntime.KeepAlive(modified)
		})
	}
}
