// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trace records the calls of a handler as readable lines.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (tr *trace) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last call of take.
func (tr *trace) take() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	lines := tr.lines
	tr.lines = nil
	return lines
}

func (tr *trace) handler() watershed.Handler[*corev1.Pod] {
	return watershed.Handler[*corev1.Pod]{
		Add: func(p *corev1.Pod, initial bool) { tr.add("add %s@%s initial=%v", p.Name, p.ResourceVersion, initial) },
		Update: func(old, now *corev1.Pod) {
			tr.add("update %s@%s from %s", now.Name, now.ResourceVersion, old.ResourceVersion)
		},
		Delete: func(last *corev1.Pod, seen bool) {
			tr.add("delete %s@%s seen=%v", last.Name, last.ResourceVersion, seen)
		},
	}
}

func onNode(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func byNode(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }

func names(pods func(func(*corev1.Pod) bool)) []string {
	list := []string{}
	for p := range pods {
		list = append(list, p.Name)
	}
	return list
}

func TestInformer_follows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", onNode("n1"))
		s.put("shop/b", onNode("n2"))
		pods := watershed.FromSource[*corev1.Pod](s, nil)
		nodes := watershed.IndexBy(pods, byNode)
		var early, late trace
		pods.Handle(early.handler())
		expect.Equal(t, pods.Len(), 0)
		running(t, pods.Run)
		<-pods.Synced()
		synctest.Wait()
		expect.Equal(t, early.take(), []string{"add a@101 initial=true", "add b@102 initial=true"})
		expect.Equal(t, names(nodes.Get("n1")), []string{"a"})

		s.put("shop/a", onNode("n2"))
		s.put("stage/c", nil)
		s.delete("shop/b")
		synctest.Wait()
		expect.Equal(t, early.take(), []string{
			"update a@103 from 101", "add c@104 initial=false", "delete b@105 seen=true",
		})
		expect.Equal(t, names(nodes.Get("n2")), []string{"a"})
		expect.Equal(t, slices.Collect(nodes.Values()), []string{"", "n2"})
		expect.Equal(t, slices.Collect(nodes.Keys("n2")), []string{"shop/a"})

		r := pods.Handle(late.handler())
		<-r.Synced()
		expect.Equal(t, late.take(), []string{"add a@103 initial=true", "add c@104 initial=true"})

		p, ok := pods.Get("shop/a")
		if !ok || p.APIVersion != "v1" || p.Kind != "Pod" {
			t.Errorf("shop/a is %v, %+v, want it with its type", ok, p.TypeMeta)
		}
		if again, _ := pods.Get("shop/a"); again != p {
			t.Error("a second look decoded the object again while the first was held")
		}
		expect.Equal(t, pods.Snapshot().Version(), 105)
		expect.Equal(t, slices.Collect(maps.Keys(maps.Collect(pods.Namespace("stage")))), []string{"stage/c"})
		expect.Equal(t, len(maps.Collect(pods.Namespace(metav1.NamespaceAll))), 2)
		expect.Equal(t, slices.Collect(maps.Keys(maps.Collect(pods.Namespace("shop")))), []string{"shop/a"})
	})
}

func TestInformer_everyTypeHasItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", onNode("n1"))
		typed := watershed.FromSource[*corev1.Pod](s, nil)
		free := watershed.FromSource[*unstructured.Unstructured](s, nil)
		meta := watershed.FromSource[*metav1.PartialObjectMetadata](s, nil)
		raw := watershed.FromSource[*wire.Object](s, nil)
		running(t, typed.Run)
		running(t, free.Run)
		running(t, meta.Run)
		running(t, raw.Run)
		synctest.Wait()
		a, _ := typed.Get("shop/a")
		b, _ := free.Get("shop/a")
		c, _ := meta.Get("shop/a")
		d, _ := raw.Get("shop/a")
		want := corev1.SchemeGroupVersion.WithKind("Pod")
		expect.Equal(t, a.GroupVersionKind(), want)
		expect.Equal(t, b.GroupVersionKind(), want)
		expect.Equal(t, c.GroupVersionKind(), want)
		expect.Equal(t, d.GroupVersionKind(), want)
		node, _, _ := unstructured.NestedString(b.Object, "spec", "nodeName")
		expect.Equal(t, node, "n1")
	})
}

func TestInformer_stopsAndStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", onNode("n1"))
		pods := watershed.FromSource[*corev1.Pod](s, nil)
		nodes := watershed.IndexBy(pods, byNode)
		var tr trace
		r := pods.Handle(tr.handler())
		stop := running(t, pods.Run)
		<-r.Synced()
		if err := pods.Run(t.Context()); !errors.Is(err, watershed.ErrRunning) {
			t.Errorf("a second Run: %v, want ErrRunning", err)
		}
		kept := pods.Snapshot()
		stop()
		expect.Equal(t, pods.Len(), 0)
		expect.Equal(t, pods.HasSynced(), false)
		expect.Equal(t, names(nodes.Get("n1")), []string{})
		// A snapshot outlives the run, and indexes can still search it. The informer does
		// not keep the values that are decoded for that.
		runtime.GC()
		expect.Equal(t, kept.Len(), 1)
		expect.Equal(t, names(nodes.GetIn(kept, "n1")), []string{"a"})
		expect.Equal(t, pods.Stats().DecodedBytes, 0)
		expect.Equal(t, tr.take(), []string{"add a@101 initial=true"})

		s.put("shop/b", onNode("n1"))
		running(t, pods.Run)
		<-r.Synced()
		expect.Equal(t, tr.take(), []string{"add a@101 initial=true", "add b@102 initial=true"})
		expect.Equal(t, names(nodes.Get("n1")), []string{"a", "b"})
		if pods.Stats().DecodedBytes == 0 {
			t.Error("a running informer keeps no decoded values")
		}
	})
}

func TestInformer_waitEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := watershed.FromSource[*corev1.Pod](deaf{}, nil)
		stop := running(t, pods.Run)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := pods.WaitForSync(t.Context()); !errors.Is(err, watershed.ErrStopped) {
				t.Errorf("WaitForSync: %v, want ErrStopped", err)
			}
		})
		wg.Go(func() {
			for c := range pods.Watch(t.Context()) {
				t.Errorf("change %v", c)
			}
		})
		synctest.Wait()
		stop()
		wg.Wait()
	})
}

// deaf is a source that never responds.
type deaf struct{}

func (deaf) List(ctx context.Context, _ reflector.ListOptions, _ func(*wire.Object) error) (reflector.Page, error) {
	<-ctx.Done()
	return reflector.Page{}, ctx.Err()
}

func (deaf) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (deaf) Served(context.Context) (bool, error) { return true, nil }

func TestInformer_emptyResourceSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := watershed.FromSource[*corev1.Pod](newServer(), nil)
		r := pods.Handle(watershed.Handler[*corev1.Pod]{})
		running(t, pods.Run)
		<-pods.Synced()
		expect.Equal(t, pods.Snapshot().Version(), 100)
		<-r.Synced()
	})
}

func TestWatch_stateThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		pods := watershed.FromSource[*corev1.Pod](s, nil)
		stop := running(t, pods.Run)
		var lines []string
		var wg sync.WaitGroup
		wg.Go(func() {
			for c := range pods.Watch(t.Context()) {
				old, _ := c.Old()
				now, err := c.New()
				line := fmt.Sprintf("%s %s@%s", c.Type, c.Key, now.ResourceVersion)
				if old != nil {
					line += " from " + old.ResourceVersion
				}
				if c.Initial {
					line += " initial"
				}
				if err != nil || c.Missed {
					t.Errorf("change %+v: %v", c, err)
				}
				lines = append(lines, line)
			}
		})
		synctest.Wait()
		s.put("shop/a", nil)
		s.delete("shop/a")
		synctest.Wait()
		stop()
		wg.Wait() // the end of the run ends the loop
		expect.Equal(t, lines, []string{
			"Added shop/a@101 initial", "Updated shop/a@102 from 101", "Deleted shop/a@103 from 102",
		})
	})
}

func TestSelect_labels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, encoding := range []wire.Encoding{wire.JSON, wire.Protobuf} {
			s := newServer()
			s.encoding = encoding
			for i, app := range []string{"web", "db", "web", ""} {
				s.put(fmt.Sprintf("shop/%s-%d", app, i), func(p *corev1.Pod) {
					if app != "" {
						p.Labels = map[string]string{"app": app, "tier": fmt.Sprint(i)}
					}
				})
			}
			pods := watershed.FromSource[*corev1.Pod](s, nil)
			stop := running(t, pods.Run)
			<-pods.Synced()
			for selector, want := range map[string][]string{
				"app=web":           {"shop/web-0", "shop/web-2"},
				"app=web,tier!=0":   {"shop/web-2"},
				"!app":              {"shop/-3"},
				"app in (db,cache)": {"shop/db-1"},
			} {
				parsed, err := labels.Parse(selector)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for key := range pods.Snapshot().Select("", parsed) {
					got = append(got, key)
				}
				expect.Equal(t, got, want)
			}
			stop()
		}
	})
}

func TestTransform_onceAndBeforeAnythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
		s.put("shop/bad", nil)
		s.put("shop/worse", nil)
		s.put("shop/worst", nil)
		calls := 0
		pods := watershed.FromSource(s,
			&watershed.SourceOptions[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
				calls++
				switch p.Name {
				case "bad":
					return nil, errors.New("refused")
				case "worse":
					return nil, nil
				case "worst":
					panic("broken")
				}
				p.Labels = map[string]string{"was": p.Spec.NodeName}
				p.Spec = corev1.PodSpec{}
				return p, nil
			}})
		running(t, pods.Run)
		<-pods.Synced()
		expect.Equal(t, calls, 4)
		p, _ := pods.Get("shop/a")
		expect.Equal(t, p.Labels, map[string]string{"was": "n1"})
		expect.Equal(t, p.Spec.NodeName, "")
		expect.Equal(t, pods.Len(), 1)
		expect.Equal(t, pods.Status().Reflector.Dropped, 3)
	})
}

func TestMutated_findsWhoChangesSharedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", onNode("n1"))
		s.put("shop/b", onNode("n1"))
		var found trace
		var pods *watershed.Informer[*corev1.Pod]
		pods = watershed.FromSource(s,
			&watershed.SourceOptions[*corev1.Pod]{Mutated: func(key string, was, is *corev1.Pod) {
				p, _ := pods.Get("shop/b") // Mutated may read the informer
				found.add("%s: %s, now %s; %s", key, was.Spec.NodeName, is.Spec.NodeName, p.Name)
			}})
		running(t, pods.Run)
		<-pods.Synced()
		p, _ := pods.Get("shop/a")
		p.Spec.NodeName = "mine"
		pods.Get("shop/b")
		time.Sleep(3 * time.Second)
		expect.Equal(t, found.take(), []string{"shop/a: n1, now mine; b"})
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		pods := watershed.FromSource[*corev1.Pod](s, nil)
		release := make(chan struct{})
		pods.Handle(watershed.Handler[*corev1.Pod]{Name: "stuck", Update: func(_, _ *corev1.Pod) { <-release }})
		running(t, pods.Run)
		<-pods.Synced()
		synctest.Wait()
		for range 3 {
			s.put("shop/a", nil)
		}
		began := time.Now()
		time.Sleep(time.Minute)
		st := pods.Status()
		expect.Equal(t, st.Reflector.State.String(), "watching")
		expect.Equal(t, st.Synced, true)
		expect.Equal(t, st.Objects, 1)
		expect.Equal(t, st.Version, 104)
		h := st.Handlers[0]
		expect.Equal(t, h.Name, "stuck")
		expect.Equal(t, h.Behind, 3)
		expect.Equal(t, h.Synced, true)
		expect.Equal(t, h.BusySince.Equal(began), true)
		close(release)
		synctest.Wait()
		h = pods.Status().Handlers[0]
		expect.Equal(t, h.Behind, 0)
		expect.Equal(t, h.Delivered, 3)
		expect.Equal(t, h.BusySince.IsZero(), true)
	})
}
