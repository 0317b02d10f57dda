// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

// freedError is the error of reads after the objects were freed.
const freedError = "informer has stopped and its objects were freed: see compat.Options.Linger"

// reads returns the result of every read of an informer of the pods a/1 and a/2, one line
// each.
func reads(i cache.SharedIndexInformer) string {
	x := i.GetIndexer()
	lister := corelisters.NewPodLister(x)
	var lines []string
	note := func(name string, result any, err error) {
		line := fmt.Sprint(name, " ", result)
		if err != nil {
			line = fmt.Sprint(name, ": ", err)
		}
		lines = append(lines, line)
	}
	listed := func(name string, objs []any, err error) { note(name, names(objs), err) }
	listed("List", x.List(), nil)
	note("ListKeys", x.ListKeys(), nil)
	_, ok, err := x.Get(pod("a", "1"))
	note("Get", ok, err)
	_, ok, err = x.GetByKey("a/2")
	note("GetByKey", ok, err)
	objs, err := x.ByIndex("label", "x")
	listed("ByIndex", objs, err)
	objs, err = x.ByIndex(cache.NamespaceIndex, "a")
	listed("of a namespace", objs, err)
	objs, err = x.Index("label", labelled(pod("a", "3"), "x"))
	listed("Index", objs, err)
	keys, err := x.IndexKeys("label", "x")
	note("IndexKeys", keys, err)
	note("values", x.ListIndexFuncValues("label"), nil)
	one, err := lister.Pods("a").Get("1")
	note("lister", one != nil, err)
	pods, err := lister.List(labels.Everything())
	note("lister's list", names(pods), err)
	note("version", x.LastStoreSyncResourceVersion(), nil)
	return strings.Join(lines, "\n")
}

const (
	readsOfAll = `List [a/1 a/2]
ListKeys [a/1 a/2]
Get true
GetByKey true
ByIndex [a/1]
of a namespace [a/1 a/2]
Index [a/1]
IndexKeys [a/1]
values [x]
lister true
lister's list [a/1 a/2]
version 2`
	readsOfFreed = `List []
ListKeys []
Get: ` + freedError + `
GetByKey: ` + freedError + `
ByIndex: ` + freedError + `
of a namespace: ` + freedError + `
Index: ` + freedError + `
IndexKeys: ` + freedError + `
values []
lister: ` + freedError + `
lister's list []
version 2`
	readsOfCleared = `List []
ListKeys []
Get false
GetByKey false
ByIndex []
of a namespace []
Index []
IndexKeys []
values []
lister: pod "1" not found
lister's list []
version `
)

// twoPods returns an informer of the pods a/1 and a/2, which is not running yet.
func twoPods(t *testing.T, opts compat.Options) cache.SharedIndexInformer {
	t.Helper()
	source := podSource(t, labelled(pod("a", "1"), "x"), pod("a", "2"))
	if opts.Logger == nil {
		opts.Logger = quiet.Logger
	}
	return compat.NewInformer(&opts)(source, &corev1.Pod{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "label": byLabel})
}

func wantReads(t *testing.T, when string, i cache.SharedIndexInformer, want string) {
	t.Helper()
	if got := reads(i); got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", when, got, want)
	}
}

func TestLinger_objectsAreReadableUntilItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		linger, want time.Duration
	}{"default": {0, 30 * time.Second}, "given": {time.Hour, time.Hour}, "none": {-1, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				i := twoPods(t, compat.Options{Linger: c.linger, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				r := join(t, i, &recorder{})
				stop := synced(t, i, r)
				wantReads(t, "while it runs", i, readsOfAll)
				time.Sleep(time.Hour)
				stop()
				if c.want > 0 {
					wantReads(t, "after the stop", i, readsOfAll)
					time.Sleep(c.want - time.Millisecond)
					wantReads(t, "before the end of the linger", i, readsOfAll)
					time.Sleep(2 * time.Millisecond)
				}
				const warning = "an informer is listed after its objects were freed"
				if strings.Contains(log.String(), warning) {
					t.Errorf("before the end of the linger it logged\n%s", &log)
				}
				for range 2 {
					wantReads(t, "freed", i, readsOfFreed)
				}
				if got := strings.Count(log.String(), warning); got != 1 {
					t.Errorf("lists of freed objects were logged %d times:\n%s", got, &log)
				}
				if !i.IsStopped() || !i.HasSynced() || !r.HasSynced() || i.LastSyncResourceVersion() != "2" {
					t.Error("a freed informer has another state than a stopped one")
				}
			})
		})
	}
}

// TestStopped_writes checks the writes that empty a store, and those that do not, before
// and after the objects were freed.
func TestStopped_writes(t *testing.T) {
	for name, linger := range map[string]time.Duration{"lingering": 0, "freed": -1} {
		t.Run(name, func(t *testing.T) {
			i := twoPods(t, compat.Options{Linger: linger})
			stop := synced(t, i)
			stop()
			before := reads(i)
			x := i.GetStore()
			for _, err := range []error{
				x.Add(pod("a", "3")), x.Update(pod("a", "1")), x.Replace([]any{pod("a", "3")}, "9"),
			} {
				if err == nil || err.Error() != "informer has stopped" {
					t.Errorf("a write after the stop: %v", err)
				}
			}
			for _, obj := range []any{pod("a", "1"), pod("b", "none"), cache.DeletedFinalStateUnknown{Key: "a/2"}} {
				if err := x.Delete(obj); err != nil {
					t.Errorf("delete %v after the stop: %v", obj, err)
				}
			}
			x.Bookmark("9")
			wantReads(t, "after writes that change nothing", i, before)
			for version, want := range map[string]string{"": "", "7": "7"} {
				for _, none := range [][]any{nil, {}} {
					if err := x.Replace(none, version); err != nil {
						t.Errorf("Replace with nothing after the stop: %v", err)
					}
					wantReads(t, "emptied", i, readsOfCleared+want)
				}
			}
		})
	}
}

// TestStopped_clearedStaysCleared checks that the end of the linger does not turn an empty
// store into an error.
func TestStopped_clearedStaysCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := twoPods(t, compat.Options{})
		synced(t, i)()
		if err := i.GetStore().Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		wantReads(t, "after the linger", i, readsOfCleared)
	})
}

// TestStopped_replaceBeforeRunReturns empties the store right after the end of the context,
// when the run may not have noticed it: no handler must be notified of a deletion.
func TestStopped_replaceBeforeRunReturns(t *testing.T) {
	for range 50 {
		i := twoPods(t, compat.Options{})
		j := &recorder{}
		r := join(t, i, j)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { i.RunWithContext(ctx) })
		cache.WaitForCacheSync(ctx.Done(), r.HasSynced)
		cancel()
		if err := i.GetStore().Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		wantReads(t, "emptied", i, readsOfCleared)
		j.expect(t, "add a/1=x true", "add a/2 true")
	}
}

// TestStopped_handlersReadTheLastState checks that the objects are not freed before the
// last handler has returned.
func TestStopped_handlersReadTheLastState(t *testing.T) {
	i := twoPods(t, compat.Options{Linger: -1})
	entered, leave := make(chan struct{}), make(chan struct{})
	var during string
	join(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if obj.(metav1.Object).GetName() == "1" {
			close(entered)
			<-leave
			during = reads(i)
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { i.RunWithContext(ctx) })
	<-entered
	cancel()
	time.Sleep(20 * time.Millisecond) // the engine drops its state meanwhile
	close(leave)
	wg.Wait()
	if during != readsOfAll {
		t.Errorf("a handler that outlives the stop reads\n%s", during)
	}
	wantReads(t, "freed", i, readsOfFreed)
}

// TestStopped_readersDuringTheStop reads and writes while informers stop: reads return
// either everything or, when it is freed, an error.
func TestStopped_readersDuringTheStop(t *testing.T) {
	for n := range 100 {
		i := twoPods(t, compat.Options{Linger: time.Duration(n%2) * -1})
		stop := synced(t, i)
		end := make(chan struct{})
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for {
					select {
					case <-end:
						return
					default:
					}
					if _, ok, err := i.GetStore().GetByKey("a/1"); !ok && err == nil {
						t.Error("an object is missing without an error")
					}
					if keys := i.GetStore().ListKeys(); n%2 == 0 && !slices.Equal(keys, []string{"a/1", "a/2"}) {
						t.Errorf("it has %q", keys)
					}
					if objs, err := i.GetIndexer().ByIndex("label", "x"); err == nil && len(objs) != 1 {
						t.Errorf("by index it has %v", objs)
					}
				}
			})
		}
		stop()
		time.Sleep(100 * time.Microsecond) // the readers read for a moment after the stop
		close(end)
		readers.Wait()
	}
}

// TestLinger_doesNotKeepAnInformerThatWasDropped checks that an informer that the program
// has dropped, as controller-runtime's RemoveInformer does, is freed before the end of its
// linger.
func TestLinger_doesNotKeepAnInformerThatWasDropped(t *testing.T) {
	collected := make(chan struct{})
	func() {
		held := &struct{ value string }{"x"}
		runtime.AddCleanup(held, func(c chan struct{}) { close(c) }, collected)
		i := compat.NewInformer(&compat.Options{Linger: time.Hour, Logger: quiet.Logger})(podSource(t, pod("a", "1")),
			&corev1.Pod{}, 0,
			cache.Indexers{"held": func(any) ([]string, error) { return []string{held.value}, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { i.RunWithContext(ctx) })
		expect.Soon(t, "sync", i.HasSynced)
		cancel()
		wg.Wait()
	}()
	expect.Soon(t, "the informer to be freed", func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	})
}
