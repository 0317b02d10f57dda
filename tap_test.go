// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// quiet is the logger of tests that cause errors on purpose.
var quiet = slog.New(slog.DiscardHandler)

// scripted is a source whose first list is given at construction. After that, each
// request takes the next prepared response, and waits for one if there is none.
type scripted struct {
	first   []*wire.Object
	version string
	lists   chan scriptedList
	watches chan []reflector.Event[*wire.Object]
	listed  bool
}

// scriptedList is a response to a list: objects, and an error instead of an end.
type scriptedList struct {
	objects []*wire.Object
	version string
	err     error
}

func newScripted(version string, first ...*wire.Object) *scripted {
	return &scripted{
		first:   first,
		version: version,
		lists:   make(chan scriptedList),
		watches: make(chan []reflector.Event[*wire.Object]),
	}
}

func (s *scripted) List(
	ctx context.Context, _ reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	l := scriptedList{objects: s.first, version: s.version}
	if s.listed {
		select {
		case l = <-s.lists:
		case <-ctx.Done():
			return reflector.Page{}, ctx.Err()
		}
	}
	s.listed = true
	for _, o := range l.objects {
		if err := each(o); err != nil {
			return reflector.Page{}, err
		}
	}
	return reflector.Page{Version: l.version}, l.err
}

func (s *scripted) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return &scriptedWatch{source: s, ctx: ctx}, nil
}

func (s *scripted) Served(context.Context) (bool, error) { return true, nil }

type scriptedWatch struct {
	source *scripted
	ctx    context.Context
	events []reflector.Event[*wire.Object]
}

// Next returns an event that the test has sent. An empty slice of events ends the
// watch: the version is too old.
func (w *scriptedWatch) Next() (reflector.Event[*wire.Object], error) {
	if len(w.events) == 0 {
		select {
		case w.events = <-w.source.watches:
		case <-w.ctx.Done():
			return reflector.Event[*wire.Object]{}, w.ctx.Err()
		}
	}
	if len(w.events) == 0 {
		return reflector.Event[*wire.Object]{}, &reflector.Error{Reason: reflector.Expired, Err: errors.New("too old")}
	}
	e := w.events[0]
	w.events = w.events[1:]
	return e, nil
}

func (w *scriptedWatch) Close() error { return nil }

func podAt(t *testing.T, name string, version uint64) *wire.Object {
	t.Helper()
	o, err := wire.Encode(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: strconv.FormatUint(version, 10)},
	}, wire.Protobuf, podKind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// tapped records a call of a tap.
type tapped struct {
	Whole   bool
	Version uint64
	State   map[string]uint64
	Changes []string
}

func tapOf(calls *[]tapped) func(watershed.Snapshot[*wire.Object], []store.Change[*wire.Object], bool) {
	return func(s watershed.Snapshot[*wire.Object], changes []store.Change[*wire.Object], whole bool) {
		c := tapped{Whole: whole, Version: s.Version(), State: map[string]uint64{}}
		for key, o := range s.Raw() {
			c.State[key] = o.Version()
		}
		for _, change := range changes {
			c.Changes = append(c.Changes, fmt.Sprintf("%s %s@%d", change.Type, change.Key, change.New.Version()))
		}
		*calls = append(*calls, c)
	}
}

// TestTap_saysWhenTheStateIsWhole has a source whose list breaks off, is repeated, and
// is followed by events.
func TestTap_saysWhenTheStateIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted("10", podAt(t, "1", 3), podAt(t, "2", 4))
		var calls []tapped
		i := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{
			Reflector: reflector.Options{
				ListOnly: true, Silence: 48 * time.Hour, Timeout: 48 * time.Hour, Logger: quiet,
			}, Tap: tapOf(&calls),
		})
		stop := running(t, i.Run)
		expectCalls := func(want ...tapped) {
			t.Helper()
			synctest.Wait()
			expect.Equal(t, calls, want)
			calls = nil
		}
		expectCalls(tapped{Whole: true, Version: 10, State: map[string]uint64{"a/1": 3, "a/2": 4}})
		s.watches <- nil
		s.lists <- scriptedList{
			objects: []*wire.Object{podAt(t, "0", 12), podAt(t, "1", 11)},
			err:     errors.New("broken off"),
		}
		synctest.Wait()
		for _, c := range calls {
			expect.Equal(t, c.Whole, false)
		}
		expect.Equal(t, i.Snapshot().Len(), 3)
		calls = nil
		s.lists <- scriptedList{objects: []*wire.Object{podAt(t, "1", 15)}, version: "20"}
		synctest.Wait()
		for _, c := range calls[:len(calls)-1] {
			expect.Equal(t, c.Whole, false)
		}
		calls = calls[len(calls)-1:]
		expectCalls(tapped{Whole: true, Version: 20, State: map[string]uint64{"a/1": 15}})
		s.watches <- []reflector.Event[*wire.Object]{{Type: delta.Bookmark, Version: "22"}}
		expectCalls(tapped{Whole: true, Version: 22, State: map[string]uint64{"a/1": 15}})
		s.watches <- []reflector.Event[*wire.Object]{{Type: delta.Deleted, Object: podAt(t, "1", 25), Version: "25"}}
		expectCalls(tapped{Whole: true, Version: 25, State: map[string]uint64{}, Changes: []string{"Deleted a/1@25"}})
		stop()
	})
}

// TestTap_isNotConfusedByWrites: a program that writes a Replaced, or a Missed deletion, to
// the copy does not begin a list.
func TestTap_isNotConfusedByWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted("10", podAt(t, "1", 3))
		var calls []tapped
		i := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{
			Reflector: reflector.Options{
				ListOnly: true, Silence: 48 * time.Hour, Timeout: 48 * time.Hour, Logger: quiet,
			}, Tap: tapOf(&calls),
		})
		stop := running(t, i.Run)
		synctest.Wait()
		own := podAt(t, "own", 11)
		i.Write(delta.Delta[*wire.Object]{Type: delta.Replaced, Missed: true, Key: own.Key(), Object: own, Version: 11})
		s.watches <- []reflector.Event[*wire.Object]{{Type: delta.Updated, Object: podAt(t, "1", 12), Version: "12"}}
		synctest.Wait()
		i.Write(delta.Delta[*wire.Object]{Type: delta.Deleted, Missed: true, Key: own.Key(), Object: own, Version: 13})
		s.watches <- []reflector.Event[*wire.Object]{{Type: delta.Updated, Object: podAt(t, "1", 14), Version: "14"}}
		synctest.Wait()
		expect.Equal(t, len(calls), 5)
		for _, c := range calls {
			expect.Equal(t, c.Whole, true)
		}
		stop()
	})
}

// TestWrite_duringTheFirstListIsReplacedByIt: the server does not have the object, so the
// copy must not have it after the list.
func TestWrite_duringTheFirstListIsReplacedByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted("")
		s.listed = true // the first list takes a prepared response, too
		i := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{
			Reflector: reflector.Options{
				ListOnly: true, Silence: 48 * time.Hour, Timeout: 48 * time.Hour, Logger: quiet,
			},
		})
		stop := running(t, i.Run)
		synctest.Wait()
		own := podAt(t, "own", 5)
		i.Write(delta.Delta[*wire.Object]{Type: delta.Added, Key: own.Key(), Object: own, Version: 5})
		s.lists <- scriptedList{objects: []*wire.Object{podAt(t, "1", 3)}, version: "10"}
		<-i.Synced()
		expect.Equal(t, slices.Sorted(maps.Keys(maps.Collect(i.All()))), []string{"a/1"})
		stop()
	})
}

// part is the origin of a delta.
type part int

const (
	event part = iota
	listed
	listEnd
)

// TestTap_splitsBatches writes random deltas in random batches. The expected calls of
// the tap follow from the parts that the deltas belong to.
func TestTap_splitsBatches(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	several := 0
	for run := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, run))
		synctest.Test(t, func(t *testing.T) {
			s := newScripted("1")
			var calls []tapped
			i := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{
				Reflector: reflector.Options{ListOnly: true, Silence: 48 * time.Hour, Timeout: 48 * time.Hour},
				Tap:       tapOf(&calls),
			})
			stop := running(t, i.Run)
			synctest.Wait()
			state, version := map[string]uint64{}, uint64(1)
			deltas, parts := deltasOf(t, rng)
			for len(deltas) > 0 {
				n := 1 + rng.IntN(min(len(deltas), 12))
				calls = nil
				i.Write(deltas[:n]...)
				var want []tapped
				for k := range n {
					if k == 0 || parts[k] != parts[k-1] {
						want = append(want, tapped{Whole: parts[k] != listed})
					}
					last := &want[len(want)-1]
					last.Changes = append(last.Changes, take(state, deltas[k])...)
					version = max(version, deltas[k].Version)
					last.Version, last.State = version, maps.Clone(state)
				}
				expect.Equal(t, calls, want)
				if len(want) > 2 {
					several++
				}
				deltas, parts = deltas[n:], parts[n:]
			}
			stop()
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	if several < 40 {
		t.Errorf("%d batches were of several parts: hardly a test", several)
	}
}

// take applies a delta to a state, and returns the changes that the tap receives for
// it.
func take(state map[string]uint64, d delta.Delta[*wire.Object]) []string {
	had, there := state[d.Key]
	var typ delta.Type
	switch {
	case d.Type == delta.Bookmark, !there && d.Type == delta.Deleted,
		there && d.Type != delta.Deleted && had == d.Object.Version():
		return nil
	case d.Type == delta.Deleted:
		typ = delta.Deleted
		delete(state, d.Key)
	case there:
		typ = delta.Updated
		state[d.Key] = d.Object.Version()
	default:
		typ = delta.Added
		state[d.Key] = d.Object.Version()
	}
	return []string{fmt.Sprintf("%s %s@%d", typ, d.Key, d.Object.Version())}
}

// deltasOf returns random deltas of events and of lists, some of which break off.
func deltasOf(t *testing.T, rng *rand.Rand) (deltas []delta.Delta[*wire.Object], parts []part) {
	version := uint64(1)
	add := func(p part, d delta.Delta[*wire.Object]) {
		deltas, parts = append(deltas, d), append(parts, p)
	}
	object := func(p part, typ delta.Type, missed bool) {
		version++
		o := podAt(t, strconv.Itoa(rng.IntN(5)), version)
		add(p, delta.Delta[*wire.Object]{
			Type: typ, Missed: missed, Listed: p == listed, Key: o.Key(), Object: o, Version: version,
		})
	}
	for range 12 {
		for range rng.IntN(4) {
			switch rng.IntN(6) {
			case 0:
				version++
				add(event, delta.Delta[*wire.Object]{Type: delta.Bookmark, Version: version})
			case 1:
				object(event, delta.Deleted, false)
			case 2:
				object(event, delta.Deleted, true) // its final state could not be read
			case 3:
				object(event, delta.Replaced, true) // a program has written it to the copy
			default:
				object(event, delta.Updated, false)
			}
		}
		for lists := 1 + rng.IntN(2); lists > 0; lists-- { // all but the last break off
			for range rng.IntN(5) {
				object(listed, delta.Replaced, false)
			}
		}
		for range 1 + rng.IntN(2) { // a list may be empty
			object(listed, delta.Deleted, true)
		}
		version++
		add(listEnd, delta.Delta[*wire.Object]{Type: delta.Bookmark, Listed: true, Version: version})
	}
	return deltas, parts
}

// TestTap_beginsWithTheVersionOfTheList runs many informers to provoke a race: the
// queue reports that it has synced just before it receives the version.
func TestTap_beginsWithTheVersionOfTheList(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	runs := 200
	if testing.Short() {
		runs = 30
	}
	a, b := podAt(t, "1", 3), podAt(t, "2", 4)
	for range runs {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := make(chan uint64, 1)
				var once sync.Once
				i := watershed.FromSource(newScripted("10", a, b), &watershed.SourceOptions[*wire.Object]{
					Reflector: reflector.Options{ListOnly: true, Logger: quiet},
					Tap: func(s watershed.Snapshot[*wire.Object], _ []store.Change[*wire.Object], _ bool) {
						once.Do(func() {
							first <- s.Version()
							cancel()
						})
					},
				})
				if err := i.Run(ctx); err != nil {
					t.Error(err)
				}
				if v := <-first; v != 10 {
					t.Errorf("the first state is at version %d, the list was at 10", v)
				}
			})
		}
		wg.Wait()
	}
}

func TestSnapshot_ranges(t *testing.T) {
	s := newServer()
	for _, key := range []string{"a/1", "a/2", "a/3", "ab/1", "b/1"} {
		s.put(key, nil)
	}
	i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	running(t, i.Run)
	synced(t, i, 30*time.Second)
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", []string{"a/1", "a/2", "a/3", "ab/1", "b/1"}},
		{"a/", "", []string{"a/1", "a/2", "a/3"}},
		{"a/", "a/1", []string{"a/2", "a/3"}},
		{"a/", "a/10", []string{"a/2", "a/3"}},
		{"a/", "A", []string{"a/1", "a/2", "a/3"}},
		{"a/", "b", nil},
		{"", "a/3", []string{"ab/1", "b/1"}},
		{"c", "", nil},
	} {
		var got []string
		for key, pod := range i.Snapshot().Range(c.prefix, c.after) {
			got = append(got, key)
			expect.Equal(t, pod.Namespace+"/"+pod.Name, key)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("Range(%q, %q) is %v, want %v", c.prefix, c.after, got, c.want)
		}
	}
	expect.Soon(t, "the watch", func() bool { return i.Connection().State == reflector.Watching })
	expect.Equal(t, i.Connection().Lists, 1)
}
