// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// pair is a real and a simulated cluster with the same pods and namespaces.
type pair struct {
	real      *kubetest.Cluster
	simulated *simulated.Cluster
	subjects  []*subject
}

func startPair(t *testing.T, opts *simulated.Options) *pair {
	t.Helper()
	p := &pair{real: kubetest.Start(t, nil), simulated: start(t, opts).Cluster(0)}
	client, err := kubernetes.NewForConfig(p.simulated.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		p.put(t, "/registry/namespaces/"+ns.Name, ns, metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
			&ns.TypeMeta, &ns.ResourceVersion)
	}
	var pods []*corev1.Pod
	for i := range p.simulated.Pods() {
		pods = append(pods, p.simulated.Pod(i))
	}
	last := len(pods) - 1
	if err := p.real.PutPods(t.Context(), pods[:last]...); err != nil {
		t.Fatal(err)
	}
	p.putPod(t, last)
	p.subjects = []*subject{newSubject(t, "real", p.real.Config()), newSubject(t, "simulated", p.simulated.Config())}
	// The real server has read everything once it has read the last object.
	p.settle(t)
	return p
}

func (p *pair) put(
	t *testing.T, key string, obj runtime.Object, kind metav1.TypeMeta, at *metav1.TypeMeta, version *string,
) {
	t.Helper()
	*at, *version = kind, ""
	var b bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(obj, &b); err != nil {
		t.Fatal(err)
	}
	if err := p.real.Put(t.Context(), key, b.Bytes()); err != nil {
		t.Fatal(err)
	}
}

// putPod writes the state of the simulated pod into the real cluster.
func (p *pair) putPod(t *testing.T, i int) {
	t.Helper()
	if err := p.real.PutPods(t.Context(), p.simulated.Pod(i)); err != nil {
		t.Fatal(err)
	}
}

// settle sets {now} of both subjects to a version at which they have the same state.
func (p *pair) settle(t *testing.T) {
	t.Helper()
	for _, s := range p.subjects {
		a := s.ask(t, request{target: "/api/v1/pods?limit=1"})
		now, _ := metaOf(a)["resourceVersion"].(string)
		if now == "" {
			t.Fatalf("%s has no version: %+v", s.name, a)
		}
		s.vars["now"] = now
	}
}

// atOnce is how many requests are usually sent to a server at once: many of them wait,
// but the real server is slow.
const atOnce = 12

// askAll sends requests to both, up to atOnce at a time.
func (p *pair) askAll(ctx context.Context, requests []request, atOnce int) ([][2]answer, error) {
	answers := make([][2]answer, len(requests))
	errs := make([][2]error, len(requests))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, r := range requests {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			var both sync.WaitGroup
			for n, s := range p.subjects {
				both.Go(func() { answers[i][n], errs[i][n] = s.answer(ctx, r) })
			}
			both.Wait()
		})
	}
	all.Wait()
	for _, e := range errs {
		if err := errors.Join(e[:]...); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// ask sends a request to both.
func (p *pair) ask(t *testing.T, r request) [2]answer {
	t.Helper()
	all, err := p.askAll(t.Context(), []request{r}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// sameAll sends requests to both and compares the responses.
func (p *pair) sameAll(t *testing.T, requests []request) {
	t.Helper()
	all, err := p.askAll(t.Context(), requests, atOnce)
	if err != nil {
		t.Fatal(err)
	}
	for i, answers := range all {
		r := requests[i]
		t.Run(fmt.Sprintf("%s accept=%s zip=%t", r.target, r.accept, r.gzip), func(t *testing.T) {
			compare(t, answers)
		})
	}
}

// same sends a request to both, compares the responses and returns them.
func (p *pair) same(t *testing.T, r request) [2]answer {
	t.Helper()
	answers := p.ask(t, r)
	// On a busy machine a short watch can end before all of its initial events were sent.
	if long := strings.Replace(r.target, "timeoutSeconds=2", "timeoutSeconds=20", 1); long != r.target &&
		!alike(&answers) {
		r.target = long
		answers = p.ask(t, r)
	}
	compare(t, answers)
	return answers
}

// alike reports whether two answers are the same.
func alike(answers *[2]answer) bool {
	for i := range answers {
		answers[i].Body = normal(answers[i].Body)
	}
	return reflect.DeepEqual(answers[0], answers[1])
}

func compare(t *testing.T, answers [2]answer) {
	t.Helper()
	if alike(&answers) {
		return
	}
	if d := cmp.Diff(answers[0], answers[1]); d != "" {
		if len(d) > 4000 {
			d = d[:4000] + "..."
		}
		t.Errorf("the simulated server (+) does not answer as the real one (-):\n%s", d)
	}
}

func TestReal_answersAlike(t *testing.T) {
	p := startPair(t, &simulated.Options{Pods: 120, Namespaces: 4, Types: 1})
	p.createEmptyType(t)
	for _, s := range p.subjects {
		s.vars["pod"] = p.simulated.Pod(17).Name
		s.vars["ns"] = p.simulated.Pod(17).Namespace
		s.vars["future"] = "9" + s.vars["now"]
	}
	for _, tc := range []struct {
		name    string
		targets []string
		accepts []string
	}{
		{"objects", []string{
			"/api/v1/namespaces/{ns}/pods/{pod}",
			"/api/v1/namespaces/{ns}/pods/{pod}?resourceVersion=0",
			"/api/v1/namespaces/{ns}/pods/{pod}?resourceVersion={now}",
			"/api/v1/namespaces/{ns}/pods/{pod}?resourceVersion=x",
			"/api/v1/namespaces/{ns}/pods/{pod}?resourceVersion={future}",
			"/api/v1/namespaces/{ns}/pods/none",
			"/api/v1/namespaces/none/pods/{pod}",
			"/api/v1/namespaces/{ns}",
			"/api/v1/namespaces/none",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/none",
		}, []string{
			"", asJSON, asProtobuf, asProtobuf + "," + asJSON, "*/*", "text/html,*/*", asJSON + partialObject,
			asProtobuf + partialObject,
		}},
		{"custom objects", []string{
			"/apis/empty.example.com/v1/namespaces/a/empty000s/none",
			"/apis/empty.example.com/v1/empty000s?watch=1&timeoutSeconds=2",
			"/apis/empty.example.com/v1/empty000s?timeoutSeconds=2&" + initialEvents,
		}, []string{asJSON, asProtobuf + "," + asJSON, asProtobuf + partialObject, asJSON + partialObject}},
		{"custom lists", []string{
			"/apis/empty.example.com/v1/namespaces/a/empty000s",
			"/apis/empty.example.com/v1/empty000s",
			"/apis/empty.example.com/v1/empty000s?limit=5",
		}, []string{asJSON, asProtobuf + "," + asJSON, asProtobuf + partialList, asJSON + partialList}},
		{"lists", []string{
			"/api/v1/pods",
			"/api/v1/namespaces/{ns}/pods",
			"/api/v1/namespaces/none/pods",
			"/api/v1/namespaces",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			"/api/v1/pods?limit=3",
			"/api/v1/namespaces/{ns}/pods?limit=7",
			"/api/v1/pods?limit=120",
			"/api/v1/pods?limit=119",
			"/api/v1/pods?limit=121",
			"/api/v1/pods?limit=0",
			"/api/v1/pods?limit=5&resourceVersion=0",
			"/api/v1/pods?resourceVersion=0&limit=5&resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?resourceVersion={now}",
			"/api/v1/pods?resourceVersion={now}&limit=2",
			"/api/v1/pods?resourceVersion={now}&limit=2&resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?resourceVersion={now}&resourceVersionMatch=Exact",
			"/api/v1/pods?resourceVersion={now}&resourceVersionMatch=Exact&limit=2",
		}, []string{asJSON, asProtobuf, asJSON + partialList, asProtobuf + partialList}},
		{"refused lists", []string{
			"/api/v1/pods?resourceVersion={future}",
			"/api/v1/pods?resourceVersion={future}&limit=2&resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?resourceVersion={future}&resourceVersionMatch=Exact",
			"/api/v1/pods?resourceVersion=x",
			"/api/v1/pods?resourceVersion=-1",
			"/api/v1/pods?resourceVersionMatch=Exact",
			"/api/v1/pods?resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?resourceVersionMatch=x&resourceVersion=1",
			"/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=0",
			"/api/v1/pods?sendInitialEvents=true",
			"/api/v1/pods?limit=x",
			"/api/v1/pods?timeoutSeconds=x",
			"/api/v1/pods?continue=x",
			"/api/v1/pods?continue=abc",
			"/api/v1/pods?continue=" + rawToken(`{"v":"meta.k8s.io/v2","rv":1,"start":"/a"}`),
			"/api/v1/pods?continue=" + rawToken(`{"v":"meta.k8s.io/v1","rv":0,"start":"/a"}`),
			"/api/v1/pods?continue=" + rawToken(`{"v":"meta.k8s.io/v1","rv":1,"start":""}`),
			"/api/v1/pods?continue=" + rawToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"/a/../b"}`),
			"/api/v1/pods?resourceVersion=5&continue=" + rawToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"/a"}`),
			"/api/v1/pods?limit=3&resourceVersion=0&continue=" +
				rawToken(`{"v":"meta.k8s.io/v1","rv":-1,"start":"/team-002"}`),
			"/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=1&continue=" +
				rawToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"/a"}`),
		}, []string{asJSON, asProtobuf}},
		{"watches", []string{
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersion={now}",
			"/api/v1/pods?watch=true&timeoutSeconds=2&resourceVersion=0",
			"/api/v1/pods?watch=1&timeoutSeconds=2&limit=3",
			"/api/v1/pods?watch=1&timeoutSeconds=2&allowWatchBookmarks=true",
			"/api/v1/pods?watch=1&timeoutSeconds=2&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?watch=1&timeoutSeconds=2&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3D-",
			"/api/v1/pods?watch=1&timeoutSeconds=2&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?watch=1&timeoutSeconds=2&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0",
			"/api/v1/pods?timeoutSeconds=2&resourceVersion=0&" + initialEvents,
			"/api/v1/pods?timeoutSeconds=2&resourceVersion={now}&" + initialEvents,
			"/api/v1/namespaces/{ns}/pods?timeoutSeconds=2&" + initialEvents,
			"/api/v1/namespaces/none/pods?timeoutSeconds=2&" + initialEvents,
			"/api/v1/namespaces?timeoutSeconds=2&" + initialEvents,
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?timeoutSeconds=2&" + initialEvents,
			"/apis/apiregistration.k8s.io/v1/apiservices?timeoutSeconds=2&" + initialEvents,
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersion={future}",
		}, []string{asJSON, asProtobuf, asJSON + partialObject, asProtobuf + partialObject}},
		{"refused watches", []string{
			"/api/v1/pods?timeoutSeconds=5&resourceVersion={future}&" + initialEvents,
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersion=x",
			"/api/v1/pods?watch=1&timeoutSeconds=2&sendInitialEvents=true",
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersionMatch=NotOlderThan",
			"/api/v1/pods?watch=1&timeoutSeconds=2&resourceVersionMatch=Exact&resourceVersion=1&sendInitialEvents=true",
		}, []string{asJSON, asProtobuf}},
		{"paths", []string{
			"/api/v1/none", "/api/v1/pods/none", "/api/v1/namespaces/{ns}/pods/a/b",
			"/api/v1/namespaces/{ns}/namespaces", "/api/v2", "/api/v1/pods/",
			"/apis/none.example", "/apis/none.example/v1", "/apis/none.example/v1/nones",
			"/apis/apiextensions.k8s.io/v2", "/apis/apiextensions.k8s.io/v2/a", "/apis/empty.example.com/v1/none",
			"/apis/empty.example.com/v2", "/apis/empty.example.com/v2/empty000s",
			"/apis/apiextensions.k8s.io/v1/none", "/none", "/none/none", "/readyz", "/healthz", "/livez",
			"/readyz/none",
		}, []string{"", asJSON, asProtobuf + "," + asJSON}},
		{"groups", []string{"/apis/apiextensions.k8s.io", "/apis/empty.example.com"}, []string{"", asJSON}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var requests []request
			for _, target := range tc.targets {
				for _, accept := range tc.accepts {
					requests = append(requests, request{target: target, accept: accept},
						request{target: target, accept: accept, gzip: true})
				}
			}
			p.sameAll(t, requests)
		})
	}
	t.Run("methods", func(t *testing.T) {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			// The real server also has no write of pods of all namespaces.
			p.same(t, request{method: method, target: "/api/v1/pods"})
			p.same(t, request{method: method, target: "/api/v1/pods", accept: asProtobuf})
			p.same(t, request{method: method, target: "/none"})
		}
	})
	t.Run("strangers", func(t *testing.T) {
		for _, target := range []string{"/api/v1/pods", "/api/v1/pods?watch=1", "/version", "/apis", "/none"} {
			for _, accept := range []string{"", asJSON, asProtobuf} {
				p.same(t, request{target: target, accept: accept, token: "wrong"})
			}
		}
	})
	t.Run("not acceptable", func(t *testing.T) {
		for _, r := range []request{
			{target: "/api/v1/pods", accept: "text/html"},
			{target: "/api/v1/pods?watch=1", accept: "text/html"},
			{target: "/api/v1/namespaces/{ns}/pods/{pod}", accept: "text/html"},
			{target: "/apis/empty.example.com/v1/empty000s", accept: asProtobuf},
			{target: "/api/v1/pods", accept: asJSON + partialObject},
			{target: "/api/v1/pods", accept: asProtobuf + partialObject},
			{target: "/api/v1/namespaces/{ns}/pods/{pod}", accept: asJSON + partialList},
		} {
			answers := p.ask(t, r)
			for i := range answers {
				// The message lists the supported media types, which differ.
				doc := answers[i].Body.([]any)[0].(map[string]any)
				if m, _ := doc["message"].(string); strings.Contains(m, "representations") ||
					strings.Contains(m, "media types") {
					delete(doc, "message")
				}
				delete(doc, "details")
			}
			compare(t, answers)
		}
	})
}

// createEmptyType creates the type of the simulated clusters in the real cluster.
func (p *pair) createEmptyType(t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.real.Config())
	if err != nil {
		t.Fatal(err)
	}
	crd := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"empty000s.empty.example.com"},
"spec":{"group":"empty.example.com","scope":"Namespaced","names":{"plural":"empty000s","singular":"empty000","kind":"Empty000"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if err := client.RESTClient().Post().AbsPath(path).Body([]byte(crd)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := client.RESTClient().Get().AbsPath("/apis/empty.example.com/v1/empty000s").Do(ctx).Error()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
