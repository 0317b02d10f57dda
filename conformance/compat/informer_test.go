// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestInformer_watchDisruption: connections break, and events are lost. Each handler ends
// with the true state, and receives the same calls as client-go's except for updates
// without a change.
func TestInformer_watchDisruption(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", "v1"), pod("2", "v1"), pod("3", "v1"))
		i := subject.pods(source)
		handlers := []*recorder{{}, {}, {}}
		for _, w := range handlers {
			join(t, i, w)
		}
		synced(t, i)
		for _, w := range handlers {
			w.expect(t, "add 1 v1*", "add 2 v1*", "add 3 v1*")
		}
		source.Add(pod("5", "v1"))
		for _, w := range handlers {
			w.expect(t, "add 5 v1")
		}
		source.AddDropWatch(pod("4", "v1"))
		source.ModifyDropWatch(pod("1", "v2"))
		source.DeleteDropWatch(pod("2", "v1"))
		source.ResetWatch()
		for _, w := range handlers {
			expect.Soon(t, "the truth", func() bool { return w.believes() == "1=v2 3=v1 4=v1 5=v1" })
			told := slices.DeleteFunc(w.take(), func(line string) bool { return strings.HasSuffix(line, "v1>v1") })
			if want := []string{"add 4 v1", "missed a/2 v1", "update 1 v1>v2"}; !slices.Equal(sortedCopy(told), want) {
				t.Errorf("it was told %q, want %q", told, want)
			}
		}
		if got := has(i); got != "1=v2 3=v1 4=v1 5=v1" {
			t.Errorf("the store has %s", got)
		}
	})
}

func TestInformer_listErrorsAreTold(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", ""))
		no := errors.New("no")
		source.ListError = no
		i := subject.pods(source)
		told := make(chan error, 100)
		if err := i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			told <- err
		}); err != nil {
			t.Fatal(err)
		}
		start(t, i)
		if err := <-told; !errors.Is(err, no) {
			t.Errorf("it was told %v", err)
		}
	})
}

// TestInformer_startRace runs the informer from many goroutines at once, while handlers
// join.
func TestInformer_startRace(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", ""))
		i := subject.pods(source)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				i.RunWithContext(ctx)
			})
			wg.Go(func() { _, _ = i.AddEventHandler(&recorder{}) })
		}
		expect.Soon(t, "sync", i.HasSynced)
		cancel()
		wg.Wait()
	})
}

// TestInformer_states checks all state that an informer reports during its life.
func TestInformer_states(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", "x"))
		i := subject.pods(source)
		if i.IsStopped() || i.HasSynced() || cache.IsDone(i.HasSyncedChecker()) || i.LastSyncResourceVersion() != "" {
			t.Error("before the start")
		}
		for range 2 {
			if err := i.SetTransform(nil); err != nil {
				t.Error(err)
			}
			if err := i.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
				t.Error(err)
			}
		}
		w := &recorder{}
		r := join(t, i, w)
		stop := synced(t, i)
		expect.Soon(t, "the handler's sync", r.HasSynced)
		if i.IsStopped() || !cache.IsDone(i.HasSyncedChecker()) || !cache.IsDone(r.HasSyncedChecker()) ||
			i.LastSyncResourceVersion() != "1" {
			t.Error("while it runs")
		}
		for _, err := range []error{
			i.SetTransform(nil), i.SetWatchErrorHandler(nil), i.SetWatchErrorHandlerWithContext(nil),
		} {
			if err == nil || err.Error() != "informer has already started" {
				t.Errorf("to set something now: %v", err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			i.Run(make(chan struct{})) // a second time: returns at once
		}()
		<-done
		stop()
		if !i.IsStopped() || !i.HasSynced() || !r.HasSynced() || i.LastSyncResourceVersion() != "1" {
			t.Error("after the end")
		}
		if got := has(i); got != "1=x" {
			t.Errorf("after the end the store has %q", got)
		}
		h := &recorder{}
		want := fmt.Sprintf("handler %v was not added to shared informer because it has stopped already", h)
		if r, err := i.AddEventHandler(h); r != nil || err == nil || err.Error() != want {
			t.Errorf("a handler after the end: %v", err)
		}
		if err := i.AddIndexers(cache.Indexers{"x": cache.MetaNamespaceIndexFunc}); err == nil ||
			err.Error() != "indexer was not added because it has stopped already" {
			t.Errorf("an index after the end: %v", err)
		}
		for range 2 {
			if err := i.RemoveEventHandler(r); err != nil {
				t.Errorf("to remove a handler after the end: %v", err)
			}
		}
		if err := cache.ShutDownEventHandler(i, r); err != nil {
			t.Error(err)
		}
		source.Add(pod("2", ""))
		if got := w.take(); !slices.Equal(got, []string{"add 1 x*"}) {
			t.Errorf("in its life it was told %q", got)
		}
	})
}

// TestInformer_shutdown stops an informer before, while and after it runs, with a busy
// handler.
func TestInformer_shutdown(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", ""))
		t.Run("removed before the start", func(t *testing.T) {
			i := subject.pods(source)
			if err := cache.ShutDownEventHandler(i, join(t, i, &recorder{})); err != nil {
				t.Fatal(err)
			}
			synced(t, i)
		})
		t.Run("waits for a busy handler", func(t *testing.T) {
			i := subject.pods(source)
			entered, leave := make(chan struct{}), make(chan struct{})
			r := join(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
				close(entered)
				<-leave
			}})
			synced(t, i)
			<-entered
			gone := make(chan error)
			go func() { gone <- cache.ShutDownEventHandler(i, r) }()
			select {
			case <-gone:
				t.Error("it did not wait for the handler")
			case <-time.After(50 * time.Millisecond):
			}
			close(leave)
			if err := <-gone; err != nil {
				t.Error(err)
			}
		})
		t.Run("run waits for a busy handler", func(t *testing.T) {
			i := subject.pods(source)
			entered, left := make(chan struct{}), false
			join(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
				close(entered)
				time.Sleep(50 * time.Millisecond) // Run has to wait for this
				left = true
			}})
			stop := synced(t, i)
			<-entered
			stop()
			if !left {
				t.Error("Run returned, and the handler had not")
			}
		})
	})
}

// TestInformer_hammer makes random writes while handlers and readers run.
func TestInformer_hammer(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t)
		i := subject.pods(source)
		w := &recorder{}
		synced(t, i, join(t, i, w))
		var writers sync.WaitGroup
		end := make(chan struct{})
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-end:
						return
					default:
					}
					for _, obj := range i.GetStore().List() {
						if obj.(*corev1.Pod).Name == "" {
							t.Error("a pod without a name")
						}
					}
					_, _ = i.GetIndexer().ByIndex(cache.NamespaceIndex, "a")
					time.Sleep(time.Millisecond) // the pace of a reader
				}
			})
		}
		var mu sync.Mutex
		want := map[string]string{}
		for n := range 10 {
			writers.Go(func() {
				for v := range 100 {
					name, label := fmt.Sprintf("%d-%d", n, rand.N(5)), fmt.Sprint(v)
					mu.Lock()
					_, there := want[name]
					switch {
					case !there:
						want[name] = label
						source.Add(pod(name, label))
					case rand.N(3) == 0:
						delete(want, name)
						source.Delete(pod(name, label))
					default:
						want[name] = label
						source.Modify(pod(name, label))
					}
					mu.Unlock()
				}
			})
		}
		writers.Wait()
		lines := []string{}
		for name, label := range want {
			lines = append(lines, name+"="+label)
		}
		slices.Sort(lines)
		expect.Soon(t, "the truth", func() bool { return w.believes() == strings.Join(lines, " ") })
		if got := has(i); got != strings.Join(lines, " ") {
			t.Errorf("the store has %s", got)
		}
		close(end)
		readers.Wait()
	})
}

// TestInformer_updatePairs: for each object a handler receives one state after the other,
// none is left out and none comes twice.
func TestInformer_updatePairs(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		const objects, versions = 20, 30
		source := newSource(t)
		i := subject.pods(source)
		w := &recorder{}
		synced(t, i, join(t, i, w))
		var wg sync.WaitGroup
		for n := range objects {
			wg.Go(func() {
				name := fmt.Sprint(n)
				source.Add(pod(name, "0"))
				for v := 1; v < versions; v++ {
					source.Modify(pod(name, fmt.Sprint(v)))
				}
				source.Delete(pod(name, "last"))
			})
		}
		wg.Wait()
		expect.Soon(t, "all events", func() bool { return w.count() == objects*(versions+1) })
		of := map[string][]string{}
		for _, line := range w.take() {
			fields := strings.Fields(line)
			of[fields[1]] = append(of[fields[1]], fields[0]+" "+fields[2])
		}
		for name, lines := range of {
			want := []string{"add 0"}
			for v := 1; v < versions; v++ {
				want = append(want, fmt.Sprintf("update %d>%d", v-1, v))
			}
			if want = append(want, "delete last"); !slices.Equal(lines, want) {
				t.Errorf("of %s it was told %q", name, lines)
			}
		}
	})
}

func TestInformer_transform(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", "x"))
		i := subject(source, &corev1.Pod{}, 0, cache.Indexers{"label": byLabel})
		if err := i.SetTransform(func(obj any) (any, error) {
			p := obj.(*corev1.Pod).DeepCopy()
			if label := p.Labels["label"]; !strings.HasPrefix(label, "t") {
				p.Labels = map[string]string{"label": "t" + label}
			}
			return p, nil
		}); err != nil {
			t.Fatal(err)
		}
		w := &recorder{}
		synced(t, i, join(t, i, w))
		source.Modify(pod("1", "y"))
		source.Add(pod("2", "z"))
		source.Delete(pod("2", "z"))
		w.expect(t, "add 1 tx*", "update 1 tx>ty", "add 2 tz", "delete 2 tz")
		for value, want := range map[string]int{"ty": 1, "y": 0, "tx": 0} {
			if objs, err := i.GetIndexer().ByIndex("label", value); err != nil || len(objs) != want {
				t.Errorf("with label %s: %v %v", value, objs, err)
			}
		}
	})
}

func byLabel(obj any) ([]string, error) {
	if label, ok := obj.(*corev1.Pod).Labels["label"]; ok {
		return []string{label}, nil
	}
	return nil, nil
}

// TestInformer_indexes: indexes are added before and after the start, and follow updates
// and deletions.
func TestInformer_indexes(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", "x"), pod("2", "y"))
		i := subject(source, &corev1.Pod{}, 0, cache.Indexers{"label": byLabel})
		if err := i.AddIndexers(cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}); err != nil {
			t.Fatal(err)
		}
		synced(t, i)
		if err := i.AddIndexers(cache.Indexers{"name": func(obj any) ([]string, error) {
			return []string{obj.(*corev1.Pod).Name, "all"}, nil
		}}); err != nil {
			t.Fatal(err)
		}
		x := i.GetIndexer()
		expect := func(index, value string, want ...string) {
			t.Helper()
			var got []string
			expect.Soon(t, fmt.Sprintf("%s=%s is %q", index, value, want), func() bool {
				keys, err := x.IndexKeys(index, value)
				objs, err2 := x.ByIndex(index, value)
				got = sortedCopy(keys)
				return err == nil && err2 == nil && slices.Equal(got, want) && len(objs) == len(want)
			})
		}
		expect("label", "x", "a/1")
		expect(cache.NamespaceIndex, "a", "a/1", "a/2")
		expect("name", "all", "a/1", "a/2")
		expect("name", "2", "a/2")
		source.Modify(pod("1", "y"))
		expect("label", "y", "a/1", "a/2")
		expect("label", "x")
		source.Delete(pod("2", "y"))
		expect("label", "y", "a/1")
		expect("name", "all", "a/1")
		if got := sortedCopy(x.ListIndexFuncValues("name")); !slices.Equal(got, []string{"1", "all"}) {
			t.Errorf("the names are %q", got)
		}
		if got := x.ListIndexFuncValues("label"); !slices.Equal(got, []string{"y"}) {
			t.Errorf("the labels are %q", got)
		}
		if err := i.AddIndexers(cache.Indexers{"name": byLabel}); err == nil ||
			err.Error() != "indexer conflict: map[name:{}]" {
			t.Errorf("a name that is taken: %v", err)
		}
		if _, err := x.ByIndex("none", ""); err == nil || err.Error() != "Index with name none does not exist" {
			t.Errorf("no index: %v", err)
		}
		if got := len(x.GetIndexers()); got != 3 {
			t.Errorf("there are %d indexes", got)
		}
	})
}

// TestInformer_storeVersion: the version follows events and bookmarks.
func TestInformer_storeVersion(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", ""), pod("2", ""))
		i := subject.pods(source)
		synced(t, i)
		for _, want := range []string{"2", "3", "4"} {
			expect.Soon(t, "version "+want, func() bool {
				return i.LastSyncResourceVersion() == want && i.GetStore().LastStoreSyncResourceVersion() == want
			})
			if want == "2" {
				source.Modify(pod("1", "x"))
			} else {
				source.Delete(pod("1", "x"))
			}
		}
	})
}
