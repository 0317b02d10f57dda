// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

// differ runs one body with client-go's informer and with ours, and compares each with
// its known behaviour.
func differ(t *testing.T, body func(t *testing.T, subject constructor) string, clientGo, watershed string) {
	t.Helper()
	for _, s := range []struct {
		name    string
		subject constructor
		want    string
	}{{"client-go", theirs, clientGo}, {"ours", ours, watershed}} {
		t.Run(s.name, func(t *testing.T) {
			if got := body(t, s.subject); got != s.want {
				t.Errorf("%s: %q, want %q", s.name, got, s.want)
			}
		})
	}
}

// crash returns how a process ends in which body runs: "" if it ends normally. It runs
// the test once more in its own process.
func crash(t *testing.T, body func()) string {
	t.Helper()
	const variable = "WATERSHED_COMPAT_CRASH"
	if os.Getenv(variable) == t.Name() {
		body()
		os.Exit(0)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if panicked, ok := strings.CutPrefix(line, "panic: "); ok {
			panicked, _, _ = strings.Cut(panicked, " [recovered")
			return strings.TrimSpace(panicked)
		}
	}
	t.Fatalf("it ended with %v:\n%s", err, out)
	return ""
}

func TestDifference_C1_relistOfTheUnchanged(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		source := newSource(t, pod("1", "x"), pod("2", "x"))
		i := subject.pods(source)
		w := &recorder{}
		synced(t, i, join(t, i, w))
		w.expect(t, "add 1 x*", "add 2 x*")
		source.ModifyDropWatch(pod("2", "y"))
		source.ResetWatch()
		expect.Soon(t, "the relist", func() bool { return w.believes() == "1=x 2=y" })
		source.Add(pod("3", "z")) // when it is reported, the whole relist has been
		expect.Soon(t, "a later change", func() bool { return w.believes() == "1=x 2=y 3=z" })
		return strings.Join(sortedCopy(w.take()), ", ")
	}, "add 3 z, update 1 x>x, update 2 x>y", "add 3 z, update 2 x>y")
}

func TestDifference_C2_deletionOfTheUnknown(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		source := newSource(t)
		i := subject.pods(source)
		w := &recorder{}
		synced(t, i, join(t, i, w))
		source.Delete(pod("1", ""))
		source.Add(pod("2", ""))
		expect.Soon(t, "the addition", func() bool { return w.believes() == "2" })
		return strings.Join(w.take(), ", ")
	}, "delete 1, add 2", "add 2")
}

func TestDifference_C3_kindIsKept(t *testing.T) {
	kindOf := func(t *testing.T, subject constructor) string {
		i := subject.pods(newSource(t, pod("1", "")))
		synced(t, i)
		return i.GetStore().List()[0].(*corev1.Pod).GroupVersionKind().String()
	}
	none := schema.GroupVersionKind{}.String()
	differ(t, kindOf, none, none)
	keeps := compat.NewInformer(&compat.Options{Logger: slog.New(slog.DiscardHandler), KeepKind: true})
	if got, want := kindOf(t, keeps), corev1.SchemeGroupVersion.WithKind("Pod").String(); got != want {
		t.Errorf("with KeepKind: %q, want %q", got, want)
	}
}

// TestHandler_panicEndsTheProgram: that is so with client-go's informer and with ours.
func TestHandler_panicEndsTheProgram(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		return crash(t, func() {
			source := newSource(t, pod("1", ""))
			i := subject.pods(source)
			w := &recorder{}
			r := join(t, i, w)
			join(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { panic("in the handler") }})
			synced(t, i, r)
			source.Add(pod("2", ""))
			w.expect(t, "add 1 *", "add 2")
			time.Sleep(patience) // the panic ends the program in this time
		})
	}, "in the handler", "in the handler")
}

func TestDifference_C5_indexThatFails(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		return crash(t, func() {
			i := subject(newSource(t, pod("1", ""), pod("2", "x")), &corev1.Pod{}, 0,
				cache.Indexers{"fails": func(obj any) ([]string, error) {
					if name, _ := text(obj); name == "1" {
						return nil, errors.New("in the index")
					}
					return []string{"x"}, nil
				}})
			synced(t, i)
			time.Sleep(500 * time.Millisecond) // client-go has synced while it panics
			if objs, err := i.GetIndexer().ByIndex("fails", "x"); err != nil || len(objs) != 1 || has(i) != "1 2=x" {
				t.Errorf("in the index: %v %v, in the store: %s", objs, err, has(i))
				os.Exit(1)
			}
		})
	}, `unable to calculate an index entry for key "a/1" on index "fails": in the index`, "")
}

func TestDifference_C6_writesToTheStoreAreTold(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		source := newSource(t)
		i := subject.pods(source)
		w := &recorder{}
		synced(t, i, join(t, i, w))
		for _, err := range []error{
			i.GetStore().Add(pod("1", "")), i.GetStore().Update(pod("1", "x")), i.GetStore().Delete(pod("1", "")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		source.Add(pod("2", ""))
		expect.Soon(t, "the addition", func() bool { return w.believes() == "2" })
		return strings.Join(w.take(), ", ")
	}, "add 2", "add 1, update 1 >x, delete 1 x, add 2")
}

func TestDifference_C7_storeHasCopies(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		i := subject.pods(newSource(t))
		p := pod("1", "x")
		if err := i.GetStore().Add(p); err != nil {
			t.Fatal(err)
		}
		p.Labels["label"] = "changed behind its back"
		return has(i)
	}, "1=changed behind its back", "1=x")
}

func TestDifference_C8_valuesAreAsAServerSendsThem(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		p := pod("1", "")
		p.Labels = map[string]string{}
		p.CreationTimestamp = metav1.NewTime(time.Unix(1, 500))
		i := subject.pods(newSource(t, p))
		synced(t, i)
		got := i.GetStore().List()[0].(*corev1.Pod)
		out := []string{}
		if got.Labels == nil {
			out = append(out, "no labels")
		}
		if got.CreationTimestamp.Nanosecond() == 0 {
			out = append(out, "whole seconds")
		}
		return strings.Join(out, ", ")
	}, "", "no labels, whole seconds")
}

func TestDifference_C9_transformThatRenames(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		i := subject.pods(newSource(t, pod("1", "")))
		if err := i.SetTransform(func(obj any) (any, error) {
			p := obj.(*corev1.Pod).DeepCopy()
			p.Name = "renamed"
			return p, nil
		}); err != nil {
			t.Fatal(err)
		}
		synced(t, i)
		return strings.Join(i.GetStore().ListKeys(), " ") + " is " + has(i)
	}, "a/renamed is renamed", "a/1 is renamed")
}

func TestDifference_C10_transformToAnotherType(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		i := subject.pods(newSource(t, pod("1", "")))
		if err := i.SetTransform(func(obj any) (any, error) {
			return &metav1.PartialObjectMetadata{ObjectMeta: obj.(*corev1.Pod).ObjectMeta}, nil
		}); err != nil {
			t.Fatal(err)
		}
		synced(t, i)
		return strings.Join(i.GetStore().ListKeys(), " ")
	}, "a/1", "")
}

func TestDifference_C11_transformThatFails(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		i := subject.pods(newSource(t, pod("1", ""), pod("2", "")))
		tried := make(chan struct{}, 100)
		if err := i.SetTransform(func(obj any) (any, error) {
			if name, _ := text(obj); name == "1" {
				tried <- struct{}{}
				return nil, errors.New("no")
			}
			return obj, nil
		}); err != nil {
			t.Fatal(err)
		}
		start(t, i)
		<-tried
		// client-go never syncs, so it has to be given some time.
		for end := time.Now().Add(2 * time.Second); !i.HasSynced() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if !i.HasSynced() {
			return "never synced"
		}
		return has(i)
	}, "never synced", "2")
}

func TestDifference_C12_otherTypesInTheStore(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		if err := subject.pods(newSource(t)).GetStore().
			Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}); err != nil {
			return err.Error()
		}
		return "taken"
	}, "taken", "store node: the object is a *v1.Node, but the informer is of *v1.Pod")
}

func TestDifference_C13_objectsWithoutAName(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		i := subject.pods(newSource(t, pod("", ""), pod("1", "")))
		synced(t, i)
		return strings.Join(sortedCopy(i.GetStore().ListKeys()), " ")
	}, "a/ a/1", "a/1")
}

func TestDifference_C14_keyOrder(t *testing.T) {
	// client-go's order is random, so only ours can be checked.
	var pods []*corev1.Pod
	var want []string
	for c := 'a'; c <= 'z'; c++ {
		pods = append([]*corev1.Pod{pod(string(c), "x")}, pods...)
		want = append(want, "a/"+string(c))
	}
	i := ours(newSource(t, pods...), &corev1.Pod{}, 0, cache.Indexers{"label": byLabel})
	synced(t, i)
	byIndex, err := i.GetIndexer().IndexKeys("label", "x")
	if got := i.GetStore().ListKeys(); err != nil || !slices.Equal(got, want) || !slices.Equal(byIndex, want) {
		t.Errorf("the keys are %q, by index %q, %v", got, byIndex, err)
	}
}

func TestDifference_C15_writesAfterTheEnd(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		i := subject.pods(newSource(t, pod("1", "")))
		synced(t, i)()
		x := i.GetStore()
		var out []string
		for _, write := range []struct {
			name string
			do   func() error
		}{
			{"add", func() error { return x.Add(pod("2", "")) }},
			{"update", func() error { return x.Update(pod("1", "x")) }},
			{"delete", func() error { return x.Delete(pod("1", "")) }},
			{"replace", func() error { return x.Replace([]any{pod("3", "")}, "7") }},
			{"empty", func() error { return x.Replace(nil, "") }},
			{"delete", func() error { return x.Delete(pod("1", "")) }},
		} {
			err := write.do()
			result := "[" + has(i) + "]"
			if err != nil {
				result = err.Error()
			}
			out = append(out, write.name+" "+result)
		}
		return strings.Join(out, ", ") + ", version " + x.LastStoreSyncResourceVersion()
	}, "add [1 2], update [1=x 2], delete [2], replace [3], empty [], delete [], version ",
		"add informer has stopped, update informer has stopped, delete [1], replace informer has stopped, empty [], "+
			"delete [], version ")
}

func TestDifference_C16_firstIndexLater(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) (got string) {
		i := subject(newSource(t), &corev1.Pod{}, 0, nil)
		defer func() {
			if p := recover(); p != nil {
				got = "panic"
			}
		}()
		if err := i.AddIndexers(cache.Indexers{"label": byLabel}); err != nil {
			t.Fatal(err)
		}
		return "added"
	}, "panic", "added")
}

// TestDifference_C21_stoppedIsFreed reads an informer right after it was stopped, as the
// workers of a controller do that is shutting down, and an hour later.
func TestDifference_C21_stoppedIsFreed(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) (got string) {
		synctest.Test(t, func(t *testing.T) {
			i := subject.pods(newSource(t, pod("1", "")))
			synced(t, i)()
			var out []string
			for _, when := range []time.Duration{0, time.Hour} {
				time.Sleep(when)
				lister := corelisters.NewPodLister(i.GetIndexer())
				_, err := lister.Pods("a").Get("1")
				all, _ := lister.List(labels.Everything())
				out = append(out, fmt.Sprintf("get %v, list %d, version %s, %v", err, len(all),
					i.LastSyncResourceVersion(), i.HasSynced()))
			}
			got = strings.Join(out, "; ")
		})
		return got
	}, "get <nil>, list 1, version 1, true; get <nil>, list 1, version 1, true",
		"get <nil>, list 1, version 1, true; get informer has stopped and its objects were freed: see "+
			"compat.Options.Linger, list 0, version 1, true")
}

func TestDifference_C22_samePointer(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) (got string) {
		synctest.Test(t, func(t *testing.T) {
			// Recently decoded values are kept, but not one that takes a quarter of their memory.
			large := pod("1", "")
			large.Annotations = map[string]string{"large": strings.Repeat("x", 2<<20)}
			i := subject.pods(newSource(t, large))
			synced(t, i)()
			first, _, err1 := i.GetIndexer().GetByKey("a/1")
			runtime.GC()
			second, _, err2 := i.GetIndexer().GetByKey("a/1")
			got = fmt.Sprintf("same pointer %t, equal %t, %v", first == second, reflect.DeepEqual(first, second),
				errors.Join(err1, err2))
		})
		return got
	}, "same pointer true, equal true, <nil>", "same pointer false, equal true, <nil>")
}
