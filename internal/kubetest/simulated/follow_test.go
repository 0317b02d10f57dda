// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/kube"
)

func TestReal_pagesAlike(t *testing.T) {
	p := startPair(t, &simulated.Options{Pods: 120, Namespaces: 4})
	for _, accept := range []string{asJSON, asProtobuf, asProtobuf + partialList} {
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/team-002/pods"} {
			t.Run(path+" "+accept, func(t *testing.T) {
				for _, s := range p.subjects {
					s.vars["continue"] = ""
				}
				seen := 0
				for page := 0; ; page++ {
					answers := p.same(t, request{target: path + "?limit=7&continue={continue}", accept: accept})
					seen += len(items(answers[0]))
					more := false
					for i, s := range p.subjects {
						s.vars["continue"], more = metaOf(answers[i])["continue"].(string)
					}
					if page == 1 {
						// Changes that are made meanwhile appear in the next list.
						p.touch(t, 30)
						p.touch(t, 90)
						p.delete(t, 91)
					}
					if !more {
						break
					}
				}
				p.create(t, 91)
				want := 120
				if path != "/api/v1/pods" {
					want = 30
				}
				if seen != want {
					t.Errorf("all pages have %d pods, want %d", seen, want)
				}
			})
		}
	}
}

// touch, delete and create make the same change in both clusters.
func (p *pair) touch(t *testing.T, i int) {
	t.Helper()
	if p.simulated.Touch(i) == 0 {
		t.Fatalf("pod %d cannot be touched", i)
	}
	p.putPod(t, i)
}

func (p *pair) create(t *testing.T, i int) {
	t.Helper()
	if p.simulated.Create(i) == 0 {
		t.Fatalf("pod %d cannot be created", i)
	}
	p.putPod(t, i)
}

func (p *pair) delete(t *testing.T, i int) {
	t.Helper()
	pod := p.simulated.Pod(i)
	if p.simulated.Delete(i) == 0 {
		t.Fatalf("pod %d cannot be deleted", i)
	}
	if err := p.real.Delete(t.Context(), "/registry/pods/"+pod.Namespace+"/"+pod.Name); err != nil {
		t.Fatal(err)
	}
}

// TestReal_eventsAlike makes the same changes in both clusters while they are watched.
func TestReal_eventsAlike(t *testing.T) {
	p := startPair(t, &simulated.Options{Pods: 40, Namespaces: 2})
	var requests []request
	begun := make(chan struct{}, 100)
	for _, accept := range []string{asJSON, asProtobuf, asJSON + partialObject, asProtobuf + partialObject} {
		for _, target := range []string{
			"/api/v1/pods?timeoutSeconds=8&watch=1&resourceVersion={now}",
			"/api/v1/namespaces/team-001/pods?timeoutSeconds=8&watch=1&resourceVersion={now}",
			"/api/v1/pods?timeoutSeconds=8&resourceVersion={now}&" + initialEvents,
		} {
			r := request{target: target, accept: accept, begun: begun}
			zipped := r
			zipped.gzip = true
			requests = append(requests, r, zipped)
		}
	}
	var all [][2]answer
	var err error
	var asking sync.WaitGroup
	asking.Go(func() { all, err = p.askAll(t.Context(), requests, len(requests)) })
	expect.Soon(t, "all watches of both servers have begun", func() bool { return len(begun) == 2*len(requests) })
	p.touch(t, 3)
	p.touch(t, 3)
	p.touch(t, 33)
	p.delete(t, 4)
	p.create(t, 4)
	p.touch(t, 4)
	p.delete(t, 34)
	if asking.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, answers := range all {
		t.Run(fmt.Sprintf("%s accept=%s zip=%t", requests[i].target, requests[i].accept, requests[i].gzip),
			func(t *testing.T) {
				events := answers[1].Body.([]any)
				if len(events) < 2 {
					t.Errorf("only %d events", len(events))
				}
				compare(t, answers)
			})
	}
	// The same watches after the changes, and the final state.
	for _, accept := range []string{asJSON, asProtobuf} {
		p.same(t, request{target: "/api/v1/pods?timeoutSeconds=1&watch=1&resourceVersion={now}", accept: accept})
		p.same(t, request{target: "/api/v1/pods", accept: accept})
		p.same(t, request{target: "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion={now}", accept: accept})
	}
}

func TestReal_expiresAlike(t *testing.T) {
	p := startPair(t, &simulated.Options{Pods: 40, Namespaces: 2})
	for _, s := range p.subjects {
		a := s.ask(t, request{target: "/api/v1/pods?limit=5"})
		s.vars["continue"], _ = metaOf(a)["continue"].(string)
		a = s.ask(t, request{target: "/api/v1/namespaces/team-001/pods?limit=5"})
		s.vars["continueOne"], _ = metaOf(a)["continue"].(string)
		s.vars["old"] = s.vars["now"]
	}
	if _, err := p.real.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.simulated.Compact()
	p.settle(t)
	for _, accept := range []string{asJSON, asProtobuf} {
		for _, target := range []string{
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersion={old}",
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersion=1",
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersion={now}",
			"/api/v1/pods?limit=5&continue={continue}",
			"/api/v1/namespaces/team-001/pods?limit=5&continue={continueOne}",
			"/api/v1/pods?limit=5&resourceVersion={old}",
			"/api/v1/pods?resourceVersion={old}&resourceVersionMatch=Exact",
			"/api/v1/pods?resourceVersion={old}&resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?resourceVersion={old}",
			"/api/v1/pods?timeoutSeconds=2&resourceVersion={old}&" + initialEvents,
		} {
			t.Run(target+" "+accept, func(t *testing.T) { p.same(t, request{target: target, accept: accept}) })
		}
		// A client may continue with the current state.
		for _, s := range p.subjects {
			a := s.ask(t, request{target: "/api/v1/pods?limit=5&continue={continue}"})
			s.vars["inconsistent"], _ = metaOf(a)["continue"].(string)
		}
		p.same(t, request{target: "/api/v1/pods?limit=5&continue={inconsistent}", accept: accept})
	}
}

func TestReal_bookmarksAlike(t *testing.T) {
	p := startPair(t, &simulated.Options{Pods: 20, Namespaces: 2, Bookmarks: time.Second})
	for _, accept := range []string{asJSON, asProtobuf, asProtobuf + partialObject} {
		// Both send a bookmark two seconds before the end, the real server only if its
		// version is newer than the start of the watch.
		p.settle(t)
		begun := make(chan struct{}, 2)
		r := request{
			target: "/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=6&resourceVersion={now}",
			accept: accept, begun: begun,
		}
		var answers [2]answer
		var asking sync.WaitGroup
		asking.Go(func() {
			if all, err := p.askAll(t.Context(), []request{r}, 1); err != nil {
				t.Error(err)
			} else {
				answers = all[0]
			}
		})
		expect.Soon(t, "both watches have begun", func() bool { return len(begun) == 2 })
		p.touch(t, 1)
		if asking.Wait(); t.Failed() {
			return
		}
		var last [2]any
		for i, a := range answers {
			for _, e := range a.Body.([]any) {
				if field(e, "type") != "BOOKMARK" {
					continue
				}
				if v := field(e, "object", "metadata", "resourceVersion"); v == nil || v == "" {
					t.Errorf("%s sends a bookmark without a version", p.subjects[i].name)
				}
				last[i] = normal(field(e, "object"))
			}
		}
		if last[0] == nil || !reflect.DeepEqual(last[0], last[1]) {
			t.Errorf("bookmarks with %s: %v, want %v", accept, last[1], last[0])
		}
	}
}

func TestReal_discoveredAlike(t *testing.T) {
	p := startPair(t, &simulated.Options{Pods: 20, Namespaces: 2, Types: 1})
	p.createEmptyType(t)
	for _, target := range []string{
		"/api", "/apis", "/api/v1", "/apis/apiextensions.k8s.io/v1", "/apis/apiregistration.k8s.io/v1",
		"/apis/empty.example.com/v1",
	} {
		for _, accept := range []string{"", asJSON, aggregatedJSON + "," + asJSON} {
			t.Run(target+" "+accept, func(t *testing.T) {
				answers := p.ask(t, request{target: target, accept: accept})
				answers[0].Body = known(answers[0].Body, answers[1].Body)
				for i := range answers {
					strip(answers[i].Body, "verbs", "subresources", "storageVersionHash", "serverAddress")
					delete(answers[i].Header, "Vary")
				}
				if !reflect.DeepEqual(answers[0], answers[1]) {
					t.Errorf("got  %s\nwant %s", text(answers[1]), text(answers[0]))
				}
			})
		}
	}
	var kinds [2][]kube.Resource
	for i, cfg := range []*rest.Config{p.real.Config(), p.simulated.Config()} {
		c := connect(t, cfg)
		var err error
		if kinds[i], err = c.Resources(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(kinds[1]) != 5 {
		t.Errorf("the simulated server has %d resources, want 5: %v", len(kinds[1]), kinds[1])
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// known returns the part of a document that the other has too: named elements of its
// lists are left out if the other has no such name.
func known(v, other any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, e := range v {
			o, _ := other.(map[string]any)
			out[key] = known(e, o[key])
		}
		return out
	case []any:
		o, _ := other.([]any)
		var out []any
		for i, e := range v {
			name := nameOf(e)
			if name == "" {
				var match any
				if i < len(o) {
					match = o[i]
				}
				out = append(out, known(e, match))
				continue
			}
			for _, candidate := range o {
				if nameOf(candidate) == name {
					out = append(out, known(e, candidate))
				}
			}
		}
		return out
	default:
		return v
	}
}

func nameOf(e any) string {
	for _, path := range [][]string{{"name"}, {"resource"}, {"metadata", "name"}} {
		if name, ok := field(e, path...).(string); ok {
			return name
		}
	}
	return ""
}

// strip deletes keys at all levels.
func strip(v any, keys ...string) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range keys {
			delete(v, key)
		}
		for _, e := range v {
			strip(e, keys...)
		}
	case []any:
		for _, e := range v {
			strip(e, keys...)
		}
	}
}

func connect(t *testing.T, cfg *rest.Config) *kube.Cluster {
	t.Helper()
	c, err := kube.FromConfig(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// follow runs an informer of pods for the duration of a test.
func follow(t *testing.T, cfg *rest.Config) *watershed.Informer[*corev1.Pod] {
	t.Helper()
	i, err := watershed.New[*corev1.Pod](connect(t, cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = i.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case <-i.Synced():
	case <-time.After(time.Minute):
		t.Fatalf("not synced: %+v", i.Status())
	}
	return i
}

// TestReal_informersAlike follows both clusters with informers through changes, cuts and
// lost history.
func TestReal_informersAlike(t *testing.T) {
	p := startPair(t, &simulated.Options{Pods: 200, Namespaces: 4})
	proxy := p.real.Proxy(t)
	informers := []*watershed.Informer[*corev1.Pod]{
		follow(t, proxy.Config(p.real.Config())), follow(t, p.simulated.Config()),
	}
	p.holdSame(t, informers)
	for i := range 20 {
		p.touch(t, i*7)
	}
	p.delete(t, 5)
	p.holdSame(t, informers)

	proxy.Cut()
	p.simulated.Cut()
	p.touch(t, 11)
	p.create(t, 5)
	p.delete(t, 6)
	p.holdSame(t, informers)

	proxy.Down()
	p.simulated.Cut()
	p.touch(t, 12)
	p.delete(t, 13)
	p.simulated.Compact()
	if _, err := p.real.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := proxy.Up(); err != nil {
		t.Fatal(err)
	}
	p.touch(t, 14)
	p.holdSame(t, informers)
}

// holdSame waits until the informers hold the state of the simulated cluster, apart from
// the versions of the real one.
func (p *pair) holdSame(t *testing.T, informers []*watershed.Informer[*corev1.Pod]) {
	t.Helper()
	expect.Eventually(t, time.Minute, func() error {
		wrong := ""
		for n, i := range informers {
			if w := holds(i, p.simulated, n == 1); w != "" {
				wrong += p.subjects[n].name + ": " + w + "\n"
			}
		}
		if wrong != "" {
			return fmt.Errorf("the informers do not have the objects of the cluster:\n%s%+v\n%+v",
				wrong, informers[0].Status(), informers[1].Status())
		}
		return nil
	})
}

// holds returns how the content of an informer differs from a cluster.
func holds(i *watershed.Informer[*corev1.Pod], c *simulated.Cluster, versions bool) string {
	want := 0
	for n := range c.Pods() {
		pod := c.Pod(n)
		if pod == nil {
			continue
		}
		want++
		got, ok := i.Get(pod.Namespace + "/" + pod.Name)
		if !ok {
			return "pod " + strconv.Itoa(n) + " is missing"
		}
		g, w := got.DeepCopy(), pod.DeepCopy()
		g.TypeMeta, w.TypeMeta = corev1.Pod{}.TypeMeta, corev1.Pod{}.TypeMeta
		if !versions {
			g.ResourceVersion, w.ResourceVersion = "", ""
		}
		if !equality.Semantic.DeepEqual(g, w) {
			return "pod " + strconv.Itoa(n) + " differs"
		}
	}
	if got := i.Len(); got != want {
		return fmt.Sprintf("%d pods, want %d", got, want)
	}
	return ""
}
