// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
)

// Every test here pins one of the entries I of "Intended differences from
// client-go" in docs/semantics.md, and pins both sides of it.

func TestDifference_relistOfTheUnchanged(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@101", "first a/1@101")
		d.relist(nil)
		d.want("", "update a/1@101 to a/1@101")
	})
}

func TestDifference_repeatedState(t *testing.T) {
	apart(t, func(d *duo) {
		p := d.write("a/1", nil)
		d.start()
		d.want("first a/1@101", "first a/1@101")
		d.send(event{typ: watch.Modified, pod: p, version: 101})
		d.settle()
		d.want("", "update a/1@101 to a/1@101")
	})
}

func TestDifference_olderState(t *testing.T) {
	apart(t, func(d *duo) {
		old := d.write("a/1", nil)
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@102", "first a/1@102")
		d.send(event{typ: watch.Modified, pod: old, version: 101})
		d.settle()
		d.want("", "update a/1@102 to a/1@101")
		d.wantHas("a/1@102", "a/1@101")
	})
}

// TestDifference_olderDeletion: a deletion from before the object was created again.
func TestDifference_olderDeletion(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.remove("a/1")
		final := d.history[1].pod
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@103", "first a/1@103")
		d.send(event{typ: watch.Deleted, pod: final, version: 102})
		d.settle()
		d.want("", "delete a/1@102")
		d.wantHas("a/1@103", "")
	})
}

func TestDifference_lastVersionOnlyGrows(t *testing.T) {
	apart(t, func(d *duo) {
		old := d.write("a/1", nil)
		d.write("a/1", nil)
		d.start()
		d.send(event{typ: watch.Modified, pod: old, version: 101})
		d.settle()
		want(t, "ours", d.ours.Status().Reflector.Version, "102")
		want(t, "client-go", d.theirs.LastSyncResourceVersion(), "101")
	})
}

func TestDifference_deletionOfTheUnknown(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@101", "first a/1@101")
		never := d.write("a/2", nil)
		d.remove("a/2")
		d.settle()
		d.tape.take()
		d.theirTape.take()
		d.send(event{typ: watch.Deleted, pod: never, version: 102})
		d.settle()
		d.want("", "delete a/2@102")
	})
}

func TestDifference_missedDeletionHasItsType(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.make()
		var ours, theirs []string
		d.ours.Handle(watershed.Handler[*corev1.Pod]{
			Delete: func(p *corev1.Pod, seen bool) { ours = append(ours, fmt.Sprintf("%T seen %v", p, seen)) },
		})
		_, err := d.theirs.AddEventHandler(cache.ResourceEventHandlerFuncs{
			DeleteFunc: func(obj any) { theirs = append(theirs, fmt.Sprintf("%T", obj)) },
		})
		must(t, err)
		d.start()
		d.relist(func() { d.remove("a/1") })
		want(t, "ours", strings.Join(ours, "; "), "*v1.Pod seen false")
		want(t, "client-go", strings.Join(theirs, "; "), "cache.DeletedFinalStateUnknown")
	})
}

func TestDifference_relistOrder(t *testing.T) {
	apart(t, func(d *duo) {
		d.streaming = false // client-go turns a stream into a list in random order
		for _, key := range []string{"a/1", "a/2", "a/3"} {
			d.write(key, nil)
		}
		d.start()
		d.want("first a/1@101; first a/2@102; first a/3@103", "first a/1@101; first a/2@102; first a/3@103")
		d.relist(func() {
			d.remove("a/1")
			d.write("a/0", nil)
			d.write("a/3", nil)
		})
		d.want("add a/0@105; update a/3@103 to a/3@106; miss a/1@101",
			"miss a/1@101; add a/0@105; update a/2@102 to a/2@102; update a/3@103 to a/3@106")
	})
}

func TestDifference_listArrivesInPieces(t *testing.T) {
	apart(t, func(d *duo) {
		d.streaming, d.chunk = false, 2
		for i := range 3 {
			d.write("a/"+strconv.Itoa(i), nil)
		}
		d.holdAt(continuing)
		d.start()
		d.wantHas("a/0@101 a/1@102", "")
		isTrue(t, !d.ours.HasSynced() && !d.theirs.HasSynced(), "neither has synced")
		d.want("", "")
		d.release()
		d.settle()
		d.wantHas("a/0@101 a/1@102 a/2@103", "a/0@101 a/1@102 a/2@103")
	})
}

func TestDifference_transformOnce(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		calls := map[bool]int{} // by whether the object has its kind: ours does
		var mu sync.Mutex
		d.opts.Transform = func(p *corev1.Pod) (*corev1.Pod, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[p.Kind != ""]++
			return p, nil
		}
		d.start()
		want(t, "calls for one object in a stream", fmt.Sprint(calls[true], calls[false]), "1 2")
	})
}

func TestDifference_transformFailureInAList(t *testing.T) {
	apart(t, func(d *duo) {
		d.streaming = false
		d.opts.Transform = cut(true)
		d.write("a/1", nil)
		d.write("a/2", func(p *corev1.Pod) { p.Labels["tier"] = "bad" })
		d.make()
		d.run()
		time.Sleep(time.Hour)
		synctest.Wait()
		isTrue(t, !d.theirs.HasSynced(), "client-go never syncs")
		isTrue(t, d.ours.HasSynced() && d.ours.Status().Reflector.Dropped == 1, "ours does, and counts what is missing")
		d.wantHas("a/1@101", "")
	})
}

func TestDifference_transformFailureKeepsTheLastState(t *testing.T) {
	apart(t, func(d *duo) {
		d.opts.Transform = cut(true)
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@101", "first a/1@101")
		d.write("a/1", func(p *corev1.Pod) { p.Labels["tier"] = "bad" })
		d.settle()
		d.wantHas("a/1@101", "a/1@101")
		d.relist(nil)
		d.want("", "miss a/1@101")
		d.wantHas("a/1@101", "")
	})
}

func TestDifference_kindIsKept(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.start()
		d.write("a/2", nil)
		d.settle()
		for _, key := range []string{"a/1", "a/2"} {
			ours, _ := d.ours.Get(key)
			want(t, "ours", ours.APIVersion+" "+ours.Kind, "v1 Pod")
			theirs, _, err := d.theirs.GetStore().GetByKey(key)
			must(t, err)
			// The model returns to client-go what its decoder would.
			want(t, "client-go", theirs.(*corev1.Pod).Kind, "")
		}
	})
}

// crashes runs this test again, in its own process, and returns the output of that
// process. In that process it returns true.
func crashes(t *testing.T) (child bool, output string) {
	t.Helper()
	const name = "WATERSHED_DIFF_CRASH"
	if os.Getenv(name) != "" {
		return true, ""
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), name+"=1")
	out, err := again.CombinedOutput()
	if err == nil {
		return false, ""
	}
	return false, string(out)
}

func TestDifference_handlerPanic(t *testing.T) {
	child, output := crashes(t)
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.make()
		if child {
			_, err := d.theirs.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
				panic("in the handler")
			}})
			must(t, err)
		}
		bad := d.ours.Handle(watershed.Handler[*corev1.Pod]{Add: func(*corev1.Pod, bool) { panic("in the handler") }})
		d.start()
		d.write("a/2", nil)
		d.settle()
		want(t, "our other handler", d.tape.take(), "first a/1@101; add a/2@102")
		isTrue(t, bad.Status().Panics == 2, "ours counts the panics")
	})
	if !child {
		isTrue(t, strings.Contains(output, "panic: in the handler"), "client-go ends the process")
	}
}

func TestDifference_indexPanic(t *testing.T) {
	child, output := crashes(t)
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.write("a/2", func(p *corev1.Pod) { p.Spec.NodeName = "bad" })
		d.make()
		values := func(p *corev1.Pod) []string {
			if p.Spec.NodeName == "bad" {
				panic("in the index")
			}
			return []string{"x"}
		}
		if child {
			must(t, d.theirs.AddIndexers(cache.Indexers{
				"bad": func(obj any) ([]string, error) { return values(obj.(*corev1.Pod)), nil },
			}))
		}
		index := watershed.IndexBy(d.ours, values)
		d.start()
		want(t, "ours, by index", strings.Join(slices.Collect(index.Keys("x")), " "), "a/1")
		n, err := index.Failing()
		isTrue(t, n == 1 && strings.Contains(err.Error(), "in the index"), "ours counts what is left out")
		isTrue(t, d.ours.Len() == 2, "ours has the object")
	})
	if !child {
		isTrue(t, strings.Contains(output, "panic: in the index"), "client-go ends the process")
	}
}

func TestDifference_firstIndexLater(t *testing.T) {
	apart(t, func(d *duo) {
		d.make()
		theirClient := newTheirClient(d.model.theirs, false)
		theirs := cache.NewSharedIndexInformerWithOptions(theirClient, &corev1.Pod{},
			cache.SharedIndexInformerOptions{})
		text := panics(func() { _ = theirs.AddIndexers(cache.Indexers{"node": theirIndexFunc("node")}) })
		isTrue(t, strings.Contains(text, "nil map"), "client-go panics if it was made without indexes")
		d.write("a/1", func(p *corev1.Pod) { p.Spec.NodeName = "node-1" })
		d.start()
		index := watershed.IndexBy(d.ours, indexFuncs["node"])
		want(t, "ours", strings.Join(slices.Collect(index.Keys("node-1")), " "), "a/1")
	})
}

func TestDifference_restart(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@101", "first a/1@101")
		d.end()
		_, err := d.theirs.AddEventHandler(&tape{})
		isTrue(t, err != nil, "client-go takes no handler after its end")
		d.ours.Handle(watershed.Handler[*corev1.Pod]{
			Add: func(p *corev1.Pod, _ bool) { d.tape.note("late %s", short(p)) },
		})
		d.write("a/1", nil)
		d.model.theirs.watches = 0
		d.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		ours := strings.Split(d.tape.take(), "; ")
		slices.Sort(ours)
		want(t, "ours starts again", strings.Join(ours, "; "), "first a/1@102; late a/1@102")
		isTrue(t, d.model.theirs.watches == 0 && d.theirTape.take() == "", "client-go does not")
	})
}

func TestDifference_stoppedIsEmpty(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.start()
		d.wantHas("a/1@101", "a/1@101")
		d.end()
		d.wantHas("", "a/1@101")
		isTrue(t, !d.ours.HasSynced() && d.theirs.HasSynced(), "and is no longer synced")
	})
}

// TestDifference_slowHandler: client-go keeps every update for a slow handler, ours only
// what fits into the window.
func TestDifference_slowHandler(t *testing.T) {
	apart(t, func(d *duo) {
		const updates = 300
		d.opts.Window = 1
		d.write("a/1", nil)
		d.make()
		gate := make(chan struct{})
		ours, theirs := 0, 0
		last := ""
		slow := d.ours.Handle(watershed.Handler[*corev1.Pod]{
			Add: func(p *corev1.Pod, _ bool) { last = short(p) },
			Update: func(old, now *corev1.Pod) {
				<-gate
				ours++
				want(t, "old", short(old), last)
				last = short(now)
			},
		})
		_, err := d.theirs.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) {
			<-gate
			theirs++
		}})
		must(t, err)
		d.start()
		for range updates {
			d.write("a/1", nil)
			synctest.Wait()
		}
		close(gate)
		d.settle()
		isTrue(t, theirs == updates, "client-go's handler gets every update")
		isTrue(t, ours < updates && slow.Status().Expired > 0, "ours gets fewer, and that is counted")
		want(t, "our handler ends with", last, "a/1@"+strconv.Itoa(101+updates))
	})
}

func TestDifference_resyncOfAHandlersOwn(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.make() // without a resync period of the informer
		ours, theirs := 0, 0
		d.ours.Handle(watershed.Handler[*corev1.Pod]{Resync: time.Minute, Update: func(_, _ *corev1.Pod) { ours++ }})
		_, err := d.theirs.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) {
			theirs++
		}}, time.Minute)
		must(t, err)
		d.start()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		want(t, "times in ten minutes", fmt.Sprint(ours, theirs), "10 0")
	})
}

func TestDifference_resyncOfALateHandler(t *testing.T) {
	apart(t, func(d *duo) {
		d.resync, d.opts.Resync = 10*time.Minute, 10*time.Minute
		d.write("a/1", nil)
		d.start()
		ours, theirs := 0, 0
		d.ours.Handle(watershed.Handler[*corev1.Pod]{Resync: time.Minute, Update: func(_, _ *corev1.Pod) { ours++ }})
		_, err := d.theirs.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) {
			theirs++
		}}, time.Minute)
		must(t, err)
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		want(t, "times in ten minutes", fmt.Sprint(ours, theirs), "10 1")
	})
}
