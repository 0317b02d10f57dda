// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// result is the result of comparing one request.
type result struct {
	request  request
	found    []finding
	server   *answer
	copy     *answer
	intended *difference // nil if there is no difference, or an unintended one
}

func TestFidelity(t *testing.T) {
	w := theWorld(t)
	recorded, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	requests := recorded
	for _, edges := range [][]request{
		w.kindEdges(), acceptEdges(), selectorEdges(), pageEdges(), versionEdges(), pathEdges(), watchEdges(),
	} {
		requests = append(requests, edges...)
	}
	requests = distinct(requests)
	if len(requests) < 300 {
		t.Errorf("%d requests are not enough to say anything", len(requests))
	}
	start := time.Now()
	results := w.compareAll(t, requests)
	t.Logf("%d requests in %.1fs", len(requests), time.Since(start).Seconds())
	start = time.Now()
	live, err := w.live(t.Context(), distinct(liveEdges()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d live watches in %.1fs", len(live), time.Since(start).Seconds())
	results = append(results, live...)

	used := map[string]int{}
	for i := range results {
		r := &results[i]
		if len(r.found) == 0 {
			continue
		}
		if w.process != nil {
			r.intended = intended(w, r)
		}
		if r.intended != nil {
			used[r.intended.name]++
			continue
		}
		t.Errorf("%s: %s\n\t%s", r.request.Category, r.request, findings(r.found))
	}
	if w.process == nil {
		return
	}
	for _, d := range differences {
		if used[d.name] == 0 {
			t.Errorf("difference %q is intended, and does not occur: delete it", d.name)
		}
	}
	if err := writeReport(w, results); err != nil {
		t.Error(err)
	}
}

func findings(found []finding) string {
	var lines []string
	for _, f := range found {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n\t")
}

// distinct fills in the method and drops duplicates.
func distinct(requests []request) []request {
	seen := map[string]bool{}
	var out []request
	for _, r := range requests {
		if r.Method == "" {
			r.Method = http.MethodGet
		}
		if key := r.String(); !seen[key] {
			seen[key] = true
			out = append(out, r)
		}
	}
	return out
}

// compareAll sends every request to both subjects, several at a time. Watches last as
// long as they request, so more of them run at once.
func (w *world) compareAll(t *testing.T, requests []request) []result {
	t.Helper()
	results := make([]result, len(requests))
	var workers sync.WaitGroup
	slow, quick := make(chan int), make(chan int)
	for _, pool := range []struct {
		jobs chan int
		size int
	}{{quick, 4}, {slow, 24}} {
		for range pool.size {
			workers.Go(func() {
				for i := range pool.jobs {
					results[i] = w.compareOne(t.Context(), requests[i])
				}
			})
		}
	}
	workers.Go(func() {
		defer close(slow)
		for i, r := range requests {
			if isSlow(r) {
				slow <- i
			}
		}
	})
	for i, r := range requests {
		if !isSlow(r) {
			quick <- i
		}
	}
	close(quick)
	workers.Wait()
	return results
}

// isSlow reports whether a request inherently takes the server seconds: watches, and
// waits for versions that are not reached.
func isSlow(r request) bool { return r.watches() || strings.Contains(r.URI, "=999999999") }

// compareOne sends a request to both. If the responses differ and the server does not
// send the same response twice, something was changing, and the request is sent to both
// again.
func (w *world) compareOne(ctx context.Context, r request) result {
	for attempt := 0; ; attempt++ {
		server, copy := w.ask(ctx, r)
		res := w.compare(r, server, copy)
		if len(res.found) == 0 || attempt == 3 {
			return res
		}
		again, _ := w.ask(ctx, r)
		if reflect.DeepEqual(stable(server), stable(again)) {
			return res
		}
	}
}

// stable returns the part of a response that stays the same as long as nothing changes.
func stable(a *answer) any {
	v, err := value(a)
	if isList(v) {
		v = without(v, "metadata", "resourceVersion", "continue")
	}
	if text(v, "kind") == "Table" {
		v = without(v, "rows") // ages
	}
	return []any{a.code, v, fmt.Sprint(err), len(significant(a.events)), len(a.next)}
}

func (w *world) compare(r request, server, copy *answer) result {
	c := comparison{request: r, restrict: w.catalogue.restrict, both: w.process == nil, prefix: w.copy.prefix}
	return result{request: r, found: c.run(server, copy), server: server, copy: copy}
}

// ask sends a request to both: watches at the same time, any other first to the copy, so
// that its response can only be older.
func (w *world) ask(ctx context.Context, r request) (server, copy *answer) {
	var both sync.WaitGroup
	defer both.Wait()
	if r.watches() {
		both.Go(func() { server = w.askOne(ctx, w.server, r) })
	}
	copy = w.askOne(ctx, w.copy, r)
	if !r.watches() {
		server = w.askOne(ctx, w.server, r)
	}
	both.Wait()
	return server, copy
}

// watchLimit is longer than any watch of the corpus.
const watchLimit = 8 * time.Second

func (w *world) askOne(ctx context.Context, s *subject, r request) *answer {
	expanded, err := w.expand(ctx, s, r)
	if err != nil {
		return &answer{err: err}
	}
	switch {
	case r.watches():
		return s.watch(ctx, expanded, watchLimit)
	case r.Pages:
		return s.sendAll(ctx, expanded)
	}
	return s.send(ctx, expanded)
}

// TestPopulation checks that there are objects of every kind to compare.
func TestPopulation(t *testing.T) {
	w := theWorld(t)
	// A certificate request of a pod contains a proof that only a kubelet can make.
	without := []string{"podcertificaterequests"}
	for _, r := range w.catalogue.mirrored() {
		if some := w.uids["one:"+r.path()] != ""; some == slices.Contains(without, r.resource) {
			t.Errorf("there are objects of %s: %v", r.path(), some)
		}
	}
	if os.Getenv(subjectVariable) == "" && w.process == nil {
		t.Error("there is no replica")
	}
}
