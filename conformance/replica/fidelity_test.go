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

// column is a subject that is compared with kube-apiserver, and a column of docs/compat.md.
type column struct {
	*subject
	// name is how the page names the column, "" for the first.
	name string
	// differences are the intended ones, nil if the subject is kube-apiserver too.
	differences []difference
	// passes means that the subject passes requests on: its discovery documents are those of
	// the server.
	passes bool
}

// columns returns the subjects.
func (w *comparedCluster) columns() []column {
	if w.process == nil {
		return []column{{subject: w.copy}}
	}
	return []column{
		{subject: w.copy, differences: differences},
		{subject: w.passing, name: "with `--pass-through`", differences: passingDifferences, passes: true},
	}
}

// result is the result of comparing one request.
type result struct {
	request  request
	found    []finding
	server   *answer
	copy     *answer
	intended *difference // nil if there is no difference, or an unintended one
}

func TestFidelity(t *testing.T) {
	w := theComparedCluster(t)
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
	columns := w.columns()
	start := time.Now()
	results := w.compareAll(t, requests, columns)
	t.Logf("%d requests in %.1fs", len(requests), time.Since(start).Seconds())
	start = time.Now()
	live, err := w.live(t.Context(), distinct(liveEdges()), columns)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d live watches in %.1fs", len(live[0]), time.Since(start).Seconds())
	for i := range columns {
		results[i] = append(results[i], live[i]...)
		w.judge(t, &columns[i], results[i])
	}
	if w.process == nil {
		return
	}
	if err := writeReport(w, columns, results); err != nil {
		t.Error(err)
	}
}

// judge checks that all differences of a column are intended, and that all intended ones
// but oldWatches occur.
func (w *comparedCluster) judge(t *testing.T, c *column, results []result) {
	t.Helper()
	used := map[string]int{}
	equal := 0
	for i := range results {
		r := &results[i]
		if len(r.found) == 0 {
			equal++
			continue
		}
		if r.intended = intended(w, r, c.differences); r.intended != nil {
			used[r.intended.name]++
			continue
		}
		t.Errorf("%s: %s: %s\n\t%s", c.subject.name, r.request.Category, r.request, findings(r.found))
	}
	for _, d := range c.differences {
		if used[d.name] == 0 && d.name != oldWatches {
			t.Errorf("%s: difference %q is intended, and does not occur: delete it", c.subject.name, d.name)
		}
	}
	t.Logf("%s: %d of %d requests equal", c.subject.name, equal, len(results))
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

// compareAll sends every request to all subjects, several at a time, and returns the results
// by column. Watches last as long as they request, so more of them run at once.
func (w *comparedCluster) compareAll(t *testing.T, requests []request, columns []column) [][]result {
	t.Helper()
	results := make([][]result, len(columns))
	for i := range columns {
		results[i] = make([]result, len(requests))
	}
	var workers sync.WaitGroup
	slow, quick := make(chan int), make(chan int)
	for _, pool := range []struct {
		jobs chan int
		size int
	}{{quick, 4}, {slow, 24}} {
		for range pool.size {
			workers.Go(func() {
				for i := range pool.jobs {
					for j, r := range w.compareEach(t.Context(), requests[i], columns) {
						results[j][i] = r
					}
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

// compareOne compares the first column.
func (w *comparedCluster) compareOne(ctx context.Context, r request) result {
	return w.compareEach(ctx, r, w.columns()[:1])[0]
}

// compareEach sends a request to the server and to the subjects of columns. The response of
// the server is compared with each. If one differs, the request is sent to all again after a
// pause, because a copy may not have the last change yet, and then until the server sends the
// same response twice.
func (w *comparedCluster) compareEach(ctx context.Context, r request, columns []column) []result {
	for attempt := 0; ; attempt++ {
		server, copies := w.ask(ctx, r, columns)
		results, equal := make([]result, len(columns)), true
		for i := range columns {
			results[i] = w.compare(&columns[i], r, server, copies[i])
			equal = equal && len(results[i].found) == 0
		}
		if equal || attempt == 3 ||
			attempt > 0 && reflect.DeepEqual(stable(server), stable(w.askOne(ctx, w.server, r))) {
			return results
		}
		time.Sleep(200 * time.Millisecond) // the copy catches up
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

func (w *comparedCluster) compare(of *column, r request, server, copy *answer) result {
	c := comparison{request: r, restrict: w.catalogue.restrict, both: w.process == nil, prefix: of.prefix}
	if of.passes {
		c.restrict, c.both, c.passed = ordered, true, copy.header.Get("Watershed-Source") == "passed-on"
	}
	return result{request: r, found: c.run(server, copy), server: server, copy: copy}
}

// ask sends a request to the server and to the subjects of columns: slow ones at the same
// time, any other last to the server, so that the responses of the others can only be older.
func (w *comparedCluster) ask(ctx context.Context, r request, columns []column) (server *answer, copies []*answer) {
	copies = make([]*answer, len(columns))
	var all sync.WaitGroup
	if isSlow(r) {
		all.Go(func() { server = w.askOne(ctx, w.server, r) })
		for i, c := range columns {
			all.Go(func() { copies[i] = w.askOne(ctx, c.subject, r) })
		}
		all.Wait()
		return server, copies
	}
	for i, c := range columns {
		copies[i] = w.askOne(ctx, c.subject, r)
	}
	return w.askOne(ctx, w.server, r), copies
}

// watchLimit is longer than any watch of the corpus.
const watchLimit = 8 * time.Second

func (w *comparedCluster) askOne(ctx context.Context, s *subject, r request) *answer {
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
	w := theComparedCluster(t)
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
