// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// watcher keeps a copy from a watch of the fleet. It checks the rules of watches: an
// added object was absent, and a changed or deleted one was present.
type watcher struct {
	pair      *pair
	path      string // with the query, except for parameters of the watch
	namespace string
	selector  string
	accept    string
	stream    bool // the first state is read as initial events
	missed    bool // clusters leave, and the deletions of their objects are missed

	// mu guards the fields below. version is where the next watch resumes, and has is the
	// copy, by cluster and key.
	mu      sync.Mutex
	version uint64
	has     map[string]string
	ended   bool // the initial events have ended
	resumes int
}

// begin reads the current state.
func (w *watcher) begin(ctx context.Context) error {
	w.has = map[string]string{}
	if w.stream {
		return nil
	}
	l, err := w.pair.list(ctx, w.namespace, url.Values{"labelSelector": {w.selector}})
	if err != nil {
		return err
	}
	for _, is := range l.identities() {
		key, version, _ := strings.Cut(is, "@")
		w.has[key] = version
	}
	w.version, err = strconv.ParseUint(l.ResourceVersion, 10, 64)
	w.ended = true
	return err
}

// run reads watches until ctx ends. Each resumes at the version of a bookmark.
func (w *watcher) run(ctx context.Context, most func() int) error {
	for ctx.Err() == nil {
		if err := w.watch(ctx, most()); err != nil {
			return err
		}
		w.mu.Lock()
		w.resumes++
		w.mu.Unlock()
	}
	return nil
}

// watch reads one watch until a bookmark after the given number of events.
func (w *watcher) watch(ctx context.Context, most int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "labelSelector": {w.selector}}
	if w.version != 0 {
		query.Set("resourceVersion", strconv.FormatUint(w.version, 10))
	} else {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	}
	resp, err := w.pair.fleet.do(ctx, request{
		Method: http.MethodGet, URI: w.path + "?" + query.Encode(), Accept: w.accept,
	}, nil)
	if err != nil {
		return unless(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", w.path, resp.Status)
	}
	var wrong error
	events := 0
	err = readEvents(resp, func(e event) {
		if wrong != nil || events < 0 {
			return
		}
		events++
		if wrong = w.take(e); wrong != nil || e.kind == string(watch.Bookmark) && events >= most {
			events = -1
			cancel()
		}
	})
	if wrong != nil {
		return fmt.Errorf("after version %d: %w", w.version, wrong)
	}
	return unless(ctx, err)
}

// unless returns the error, or nil if ctx has ended.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// knows returns an error if the copy differs from the wanted state.
func (w *watcher) knows(want []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for key, version := range w.has {
		got = append(got, key+"@"+version)
	}
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) || !w.ended {
		return fmt.Errorf("%q as %q: the watch tells of\n%q, want\n%q (initial events over: %v)", w.selector, w.accept,
			got, want, w.ended)
	}
	return nil
}

// take applies an event.
func (w *watcher) take(e event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, version, _ := strings.Cut(located(e.metadata()), "@")
	was, known := w.has[key]
	switch watch.EventType(e.kind) {
	case watch.Added:
		if known {
			return fmt.Errorf("%s is added and was there at %s", e.name(), was)
		}
		w.has[key] = version
	case watch.Modified:
		if !known || was == version {
			return fmt.Errorf("%s is changed and was at %q", e.name(), was)
		}
		w.has[key] = version
	case watch.Deleted:
		// A deletion has the version of the object's end, also if the object only stopped
		// matching.
		if !known || was == version && !w.missed {
			return fmt.Errorf("%s is deleted and was at %q", e.name(), was)
		}
		delete(w.has, key)
	case watch.Bookmark:
		at, err := strconv.ParseUint(version, 10, 64)
		if err != nil || at < w.version {
			return fmt.Errorf("a bookmark at %s after %d: %w", version, w.version, err)
		}
		w.ended = w.ended || e.initialEnd()
		if !w.ended {
			return fmt.Errorf("the first bookmark is %v", e.object)
		}
		w.version = at
	default:
		return fmt.Errorf("%s: %v", e.kind, e.object)
	}
	return nil
}

// testFleetWatch: watches of every kind have the state of the clusters at the end of a
// random history, even if they are ended and resumed all the time.
func testFleetWatch(t *testing.T, p *pair) {
	const n = 12
	rng := newRandom(t)
	p.fill(t, "watched", n)
	p.namespace(t, "elsewhere")
	const path = "/api/v1/namespaces/watched/configmaps"
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	watchers := []*watcher{
		{path: path},
		{path: path, selector: "color=red"},
		{path: path, selector: "color=red", stream: true, accept: table},
		{path: path, selector: "!color", accept: "application/vnd.kubernetes.protobuf;stream=watch"},
		{path: path, selector: "color", stream: true},
		{path: path, stream: true, accept: "application/vnd.kubernetes.protobuf;stream=watch"},
		{
			path:     path,
			selector: "color in (red,blue)",
			accept:   "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		},
		{path: path, stream: true, accept: table},
	}
	few := rand.New(rand.NewPCG(rng.Uint64(), 0))
	stop := start(t, p, "watched", watchers, func() int { return 1 + few.IntN(10) })
	for range 250 {
		namespace := "watched"
		if rng.IntN(8) == 0 {
			namespace = "elsewhere"
		}
		if err := p.change(t.Context(), rng, namespace, n); err != nil {
			t.Error(err)
		}
	}
	for _, w := range watchers {
		p.await(t, func(ctx context.Context) error {
			want, err := p.truth(ctx, "watched", w.selector)
			if err != nil {
				return err
			}
			return w.knows(want)
		})
	}
	stop()
	for i, w := range watchers {
		if i%2 == 1 && w.resumes < 3 {
			t.Errorf("%q as %q was gone on with %d times", w.selector, w.accept, w.resumes)
		}
	}
}

// start runs watchers. Every second one ends its watches all the time, after most events.
// The returned function ends them.
func start(t *testing.T, p *pair, namespace string, watchers []*watcher, most func() int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var mu sync.Mutex
	var running sync.WaitGroup
	for i, w := range watchers {
		w.pair, w.namespace = p, namespace
		if err := w.begin(ctx); err != nil {
			t.Error(err)
		}
		few := func() int {
			if i%2 == 0 {
				return math.MaxInt
			}
			mu.Lock()
			defer mu.Unlock()
			return most()
		}
		running.Go(func() {
			if err := w.run(ctx, few); err != nil {
				t.Errorf("%q as %q: %v", w.selector, w.accept, err)
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}
