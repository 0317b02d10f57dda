// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

func TestNew_refusesNonsense(t *testing.T) {
	for _, o := range []simulated.Options{
		{Clusters: -1}, {Pods: -1}, {Pods: 1_000_001}, {Namespaces: 1001}, {Types: -1}, {History: -1}, {Bookmarks: -1},
	} {
		if s, err := simulated.New(&o); err == nil {
			s.Close()
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestClose_endsEverything(t *testing.T) {
	s := start(t, &simulated.Options{Clusters: 3, Pods: 100})
	var watches []*bufio.Reader
	for i := range 50 * s.Clusters() {
		c := s.Cluster(i % s.Clusters())
		sub := newSubject(t, c.Name(), c.Config())
		resp, err := sub.begin(t.Context(), request{target: "/api/v1/pods?" + initialEvents})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		watches = append(watches, bufio.NewReader(resp.Body))
	}
	s.Close()
	if open := s.Stats().OpenWatches; open != 0 {
		t.Errorf("%d watches are open", open)
	}
	s.Close()
	for _, w := range watches {
		for {
			if _, err := w.ReadString('\n'); err != nil {
				break
			}
		}
	}
	for i := range s.Clusters() {
		sub := newSubject(t, s.Cluster(i).Name(), s.Cluster(i).Config())
		if _, err := sub.answer(t.Context(), request{target: "/version"}); err == nil {
			t.Errorf("cluster %d still answers", i)
		}
	}
}

func TestCluster_hasAnAddressAndATokenOfItsOwn(t *testing.T) {
	s := start(t, &simulated.Options{Clusters: 2, Pods: 10})
	a, b := s.Cluster(0), s.Cluster(1)
	if a.Addr() == b.Addr() || a.Config().BearerToken == b.Config().BearerToken || a.Name() == b.Name() {
		t.Errorf("%s %s, %s %s", a.Name(), a.Addr(), b.Name(), b.Addr())
	}
	for _, c := range []*simulated.Cluster{a, b} {
		if !strings.HasPrefix(c.Addr(), "127.") {
			t.Errorf("%s listens on %s", c.Name(), c.Addr())
		}
	}
	cfg := a.Config()
	cfg.BearerToken = b.Config().BearerToken
	if got := newSubject(t, "a", cfg).ask(t, request{target: "/api/v1/pods"}); got.Code != http.StatusUnauthorized {
		t.Errorf("the token of another cluster: %d", got.Code)
	}
}

func TestSelectors_areRefused(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 10}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	for _, q := range []string{"labelSelector=a%3Db", "fieldSelector=metadata.name%3Da", "watch=1&labelSelector=a"} {
		if got := sub.ask(t, request{target: "/api/v1/pods?" + q}); got.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", q, got.Code)
		}
	}
}

// keysOf returns the keys on all pages, and the versions of the pages.
func keysOf(t *testing.T, sub *subject, path string, limit int, between func(page int)) (keys, versions []string) {
	t.Helper()
	next := ""
	for page := 0; ; page++ {
		a := sub.ask(t, request{target: fmt.Sprintf("%s?limit=%d&continue=%s", path, limit, next), accept: asProtobuf})
		if a.Code != http.StatusOK {
			t.Fatalf("page %d: %+v", page, a)
		}
		for _, item := range items(a) {
			keys = append(keys, fmt.Sprint(field(item, "metadata", "namespace"), "/", field(item, "metadata", "name"),
				"@", field(item, "metadata", "resourceVersion")))
		}
		versions = append(versions, fmt.Sprint(metaOf(a)["resourceVersion"]))
		more, ok := metaOf(a)["continue"].(string)
		if !ok {
			return keys, versions
		}
		next = more
		between(page)
	}
}

func TestList_pagesAreOfOneVersion(t *testing.T) {
	const n = 201 // the last page has one
	c := start(t, &simulated.Options{Pods: n, Namespaces: 9}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	nothing := func(int) {}
	before, _ := keysOf(t, sub, "/api/v1/pods", n, nothing)
	paged, versions := keysOf(t, sub, "/api/v1/pods", 10, func(page int) {
		c.Touch(page)
		c.Touch(n - 1 - page)
		c.Delete(100 + page)
		c.Delete(n/2 + 40 + page)
		c.Create(100 + page)
	})
	if strings.Join(paged, " ") != strings.Join(before, " ") {
		t.Errorf("pages under way see changes:\n%v\nwant\n%v", paged, before)
	}
	for _, v := range versions {
		if v != versions[0] {
			t.Fatalf("pages of the versions %v", versions)
		}
	}
	after, _ := keysOf(t, sub, "/api/v1/pods", 7, nothing)
	alive := 0
	for i := range n {
		if c.Pod(i) != nil {
			alive++
		}
	}
	if len(after) != alive || alive == n {
		t.Errorf("%d pods in pages, %d there", len(after), alive)
	}
}

func TestList_expires(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 30, Namespaces: 2, History: 10}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	now := fmt.Sprint(c.Version())
	next, _ := metaOf(sub.ask(t, request{target: "/api/v1/pods?limit=5"}))["continue"].(string)
	code := func() (list, page, watch int) {
		list = sub.ask(t, request{target: "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=" + now}).Code
		page = sub.ask(t, request{target: "/api/v1/pods?limit=5&continue=" + next}).Code
		events := sub.ask(t, request{
			target: "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=" + now,
		}).Body.([]any)
		if len(events) > 0 && field(events[0], "type") == "ERROR" {
			code, _ := field(events[0], "object", "code").(float64)
			watch = int(code)
		}
		return list, page, watch
	}
	for range 10 {
		c.Touch(0)
	}
	if list, page, watch := code(); list != 200 || page != 200 || watch != 0 {
		t.Errorf("with all of the history: %d %d %d", list, page, watch)
	}
	c.Touch(0)
	if list, page, watch := code(); list != 410 || page != 410 || watch != 410 {
		t.Errorf("after one change too many: %d %d %d", list, page, watch)
	}
	now = fmt.Sprint(c.Version())
	next, _ = metaOf(sub.ask(t, request{target: "/api/v1/pods?limit=5"}))["continue"].(string)
	if left := c.Compact(); fmt.Sprint(left) == now {
		t.Error("a compaction leaves a version that was given out")
	}
	if list, page, watch := code(); list != 410 || page != 410 || watch != 410 {
		t.Errorf("after a compaction: %d %d %d", list, page, watch)
	}
	now = fmt.Sprint(c.Version())
	next, _ = metaOf(sub.ask(t, request{target: "/api/v1/pods?limit=5"}))["continue"].(string)
	if list, page, watch := code(); list != 200 || page != 200 || watch != 0 {
		t.Errorf("of what came after it: %d %d %d", list, page, watch)
	}
}

// events reads the events of a watch in JSON, one at a time.
type events struct {
	d    *json.Decoder
	resp *http.Response
}

func watch(t *testing.T, sub *subject, target string) *events {
	t.Helper()
	resp, err := sub.begin(t.Context(), request{target: target})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return &events{d: json.NewDecoder(resp.Body), resp: resp}
}

func (e *events) next() (kind, version string, err error) {
	var event struct {
		Type   string
		Object struct{ Metadata metav1.ObjectMeta }
	}
	err = e.d.Decode(&event)
	return event.Type, event.Object.Metadata.ResourceVersion, err
}

func TestWatch_sendsWhatHappens(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 30, Namespaces: 3, Bookmarks: 50 * time.Millisecond}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	from := c.Version()
	first := c.Touch(1)
	w := watch(t, sub, fmt.Sprintf("/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=%d", from))
	want := func(kind string, version uint64) {
		t.Helper()
		for {
			k, v, err := w.next()
			if err != nil {
				t.Fatal(err)
			}
			if k == "BOOKMARK" && kind != k {
				continue
			}
			if k != kind || v != fmt.Sprint(version) {
				t.Fatalf("%s %s, want %s %d", k, v, kind, version)
			}
			return
		}
	}
	want("MODIFIED", first)
	want("MODIFIED", c.Touch(29))
	want("DELETED", c.Delete(29))
	want("ADDED", c.Create(29))
	want("BOOKMARK", c.Version())
	// A client that has seen everything is not affected by the compaction.
	c.Compact()
	want("MODIFIED", c.Touch(3))
	if s := c.Stats(); s.Watches != 1 || s.OpenWatches != 1 || s.Sent == 0 {
		t.Errorf("%+v", s)
	}
	w.resp.Body.Close()
	expect.Soon(t, "the watch has ended", func() bool { return c.Stats().OpenWatches == 0 })
}

// TestWatch_compressedIsSeenAtOnce reads with a reader that holds back the end of
// a compressed stream until it knows whether another follows.
func TestWatch_compressedIsSeenAtOnce(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 30}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := sub.begin(ctx, request{target: "/api/v1/pods?" + initialEvents, gzip: true})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	w := &events{d: json.NewDecoder(z)}
	for kind := ""; kind != "BOOKMARK"; {
		if kind, _, err = w.next(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		want := c.Touch(i)
		if _, v, err := w.next(); err != nil || v != fmt.Sprint(want) {
			t.Fatalf("%s, %v, want %d", v, err, want)
		}
	}
}

func TestWatch_ofANamespaceSendsOnlyItsOwn(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 30, Namespaces: 3}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	w := watch(t, sub, fmt.Sprintf("/api/v1/namespaces/%s/pods?watch=1&resourceVersion=%d", c.Pod(10).Namespace,
		c.Version()))
	c.Touch(0)
	c.Touch(29)
	want := c.Touch(10)
	if _, v, err := w.next(); err != nil || v != fmt.Sprint(want) {
		t.Errorf("%s, %v, want %d", v, err, want)
	}
}

// TestWatch_isEndedWhenItFallsBehind uses a client that does not read.
func TestWatch_isEndedWhenItFallsBehind(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 200, History: 100}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	w := watch(t, sub, fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=%d", c.Version()))
	// HTTP/2 and TCP buffer some megabytes before the server notices.
	for i := range 20_000 {
		c.Touch(i % 200)
		if i%1000 == 0 {
			time.Sleep(time.Millisecond) // the server sends some events meanwhile
		}
	}
	seen := 0
	for {
		kind, _, err := w.next()
		if err != nil {
			break
		}
		if kind != "MODIFIED" {
			t.Fatal(kind)
		}
		seen++
	}
	if seen == 0 || seen >= 20_000 {
		t.Errorf("%d events of 20,000 to a client that was late", seen)
	}
}

func TestWatch_endsAtItsTime(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 10, Types: 1}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	for _, target := range []string{
		"/api/v1/pods?timeoutSeconds=1&" + initialEvents,
		"/apis/empty.example.com/v1/empty000s?timeoutSeconds=1&watch=1",
	} {
		begin := time.Now()
		sub.ask(t, request{target: target, gzip: true}) // fails if the response does not end properly
		if took := time.Since(begin); took < time.Second {
			t.Errorf("%s ended after %s", target, took)
		}
	}
}

func TestReach_waitsForAVersion(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 10}).Cluster(0)
	sub := newSubject(t, "simulated", c.Config())
	next := c.Version() + 1
	var wait sync.WaitGroup
	wait.Go(func() {
		expect.Soon(t, "the request has arrived", func() bool { return c.Stats().Lists == 1 })
		c.Touch(1)
	})
	defer wait.Wait()
	a := sub.ask(t, request{
		target: fmt.Sprintf("/api/v1/pods?resourceVersionMatch=NotOlderThan&resourceVersion=%d", next),
	})
	if a.Code != http.StatusOK || metaOf(a)["resourceVersion"] != fmt.Sprint(next) {
		t.Errorf("%d %v", a.Code, metaOf(a))
	}
}

func TestChurn_isPaced(t *testing.T) {
	s := start(t, &simulated.Options{Clusters: 5, Pods: 50})
	before := uint64(0)
	for i := range 5 {
		before += s.Cluster(i).Version()
		for pod := range 25 {
			s.Cluster(i).Delete(pod)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	changes := s.Churn(ctx, 1000)
	after := uint64(0)
	for i := range 5 {
		after += s.Cluster(i).Version()
	}
	if changes < 300 || changes > 1100 {
		t.Errorf("%d changes in a second, want 1000", changes)
	}
	if got := int(after-before) - 5*25; got != changes {
		t.Errorf("%d changes, %d reported", got, changes)
	}
}

// TestInformer_followsChurn lists, watches and loses connections and history
// while everything changes.
func TestInformer_followsChurn(t *testing.T) {
	s := start(t, &simulated.Options{
		Clusters: 2, Pods: 300, Namespaces: 5, History: 512, Bookmarks: 100 * time.Millisecond,
	})
	c := s.Cluster(1)
	i := follow(t, c.Config())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.Churn(ctx, 2000) })
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			c.Delete(n * 7 % 300)
			c.Create(n * 3 % 300)
			switch n % 40 {
			case 13:
				c.Cut()
			case 27:
				c.Compact()
				c.Cut()
			}
			time.Sleep(10 * time.Millisecond) // the pace of the changes
		}
	})
	all.Wait()
	expect.Eventually(t, time.Minute, func() error {
		if wrong := holds(i, c, true); wrong != "" {
			return fmt.Errorf("%s: %+v", wrong, i.Status())
		}
		return nil
	})
}

// nowhere is a response that is discarded.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}

// BenchmarkList measures the cost of a pod in a list: made, for the server alone, and
// sent, through TLS and HTTP/2 to a client that discards it.
func BenchmarkList(b *testing.B) {
	const pods = 10_000
	c := start(b, &simulated.Options{Pods: pods}).Cluster(0)
	sub := newSubject(b, "simulated", c.Config())
	for _, how := range []request{
		{accept: asProtobuf},
		{accept: asProtobuf, gzip: true},
		{accept: asJSON},
		{accept: asJSON, gzip: true},
	} {
		how.target = "/api/v1/pods"
		name := strings.TrimPrefix(strings.TrimPrefix(how.accept, "application/"), "vnd.kubernetes.")
		if how.gzip {
			name += "-gzip"
		}
		run := func(what string, list func() error) {
			b.Run(what+"/"+name, func(b *testing.B) {
				sent := c.Stats().Sent
				for b.Loop() {
					if err := list(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/pods, "µs/pod")
				b.ReportMetric(float64(c.Stats().Sent-sent)/float64(b.N)/pods, "B/pod")
				b.ReportMetric(0, "ns/op")
			})
		}
		run("made", func() error {
			req, err := sub.request(b.Context(), how)
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+c.Config().BearerToken)
			c.ServeHTTP(&nowhere{header: http.Header{}}, req)
			return nil
		})
		run("sent", func() error {
			resp, err := sub.begin(b.Context(), how)
			if err != nil {
				return err
			}
			return drain(resp)
		})
	}
}

// drain reads and discards a body.
func drain(resp *http.Response) error {
	defer resp.Body.Close()
	_, err := io.Copy(io.Discard, resp.Body)
	return err
}
