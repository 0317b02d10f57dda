// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

func TestKindOf(t *testing.T) {
	for _, test := range []struct {
		value    any
		resource string
		kind     string
	}{
		{&corev1.Pod{}, "/v1, Resource=pods", "Pod"},
		{(*corev1.Pod)(nil), "/v1, Resource=pods", "Pod"},
		{&corev1.Event{}, "/v1, Resource=events", "Event"},
		{&eventsv1.Event{}, "events.k8s.io/v1, Resource=events", "Event"},
		{&appsv1.Deployment{}, "apps/v1, Resource=deployments", "Deployment"},
		{&networkingv1.NetworkPolicy{}, "networking.k8s.io/v1, Resource=networkpolicies", "NetworkPolicy"},
		{&networkingv1.Ingress{}, "networking.k8s.io/v1, Resource=ingresses", "Ingress"},
	} {
		gvr, kind, ok := kube.ResourceOf(test.value)
		if !ok || gvr.String() != test.resource || kind.Kind != test.kind {
			t.Errorf("%T is of %s, kind %v", test.value, gvr, kind)
			continue
		}
		again, ok := kube.KindOf(gvr)
		if !ok || again != kind {
			t.Errorf("%s is of kind %v", gvr, again)
		}
		if made := kind.New(); reflect.TypeOf(made) != reflect.TypeOf(test.value) || kind.New() == made {
			t.Errorf("%s makes a %T", kind, made)
		}
	}
	if kind, ok := kube.KindOf(corev1.SchemeGroupVersion.WithResource("endpoints")); !ok || kind.Kind != "Endpoints" {
		t.Errorf("endpoints are of kind %v", kind)
	}
	for _, value := range []any{
		nil,
		"pod",
		corev1.Pod{},
		&corev1.PodList{},
		&corev1.PodSpec{},
		&metav1.Status{},
		&metav1.PartialObjectMetadata{},
		&metav1.WatchEvent{},
		&widget{},
	} {
		if gvr, kind, ok := kube.ResourceOf(value); ok {
			t.Errorf("%T is of %s, kind %s", value, gvr, kind)
		}
	}
	for _, gvr := range []schema.GroupVersionResource{
		nonsense,
		{},
		nonsense.GroupVersion().WithResource("widgets"),
		{Version: "v1", Resource: "podlists"},
		{Version: "v1", Resource: "statuses"},
	} {
		if kind, ok := kube.KindOf(gvr); ok {
			t.Errorf("%s is of kind %s", gvr, kind)
		}
	}
}

func TestSource_refusesWhatIsNoQuery(t *testing.T) {
	c := open(t, &rest.Config{Host: "https://nowhere.example:6443"})
	for want, q := range map[string]kube.Query{
		"no resource":          {},
		`resource "pods/log"`:  {Resource: corev1.SchemeGroupVersion.WithResource("pods/log")},
		"no version":           {Resource: schema.GroupVersionResource{Resource: "pods"}},
		`version ".."`:         {Resource: schema.GroupVersionResource{Version: "..", Resource: "pods"}},
		`group "a/b"`:          {Resource: schema.GroupVersionResource{Group: "a/b", Version: "v1", Resource: "pods"}},
		`namespace "../x"`:     {Resource: pods, Namespace: "../x"},
		`label selector "a in`: {Resource: pods, LabelSelector: "a in b"},
		`field selector "a"`:   {Resource: pods, FieldSelector: "a"},
	} {
		_, err := c.Source(q)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %s", q.Resource, err, want)
		}
		if _, err := c.List(t.Context(), q, nil); err == nil {
			t.Errorf("%s can be listed", want)
		}
		for _, err := range c.Watch(t.Context(), q, "") {
			if err == nil {
				t.Errorf("%s can be watched", want)
			}
		}
	}
}

func TestFromConfig_refuses(t *testing.T) {
	if _, err := kube.FromConfig(nil, nil); err == nil {
		t.Error("no configuration is one")
	}
	if _, err := kube.FromConfig(&rest.Config{Host: "a b/c"}, nil); err == nil {
		t.Error("a host with a space")
	}
	if _, err := kube.FromConfig(&rest.Config{
		Host:            "https://a",
		TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"},
	}, &kube.Options{Name: "prod"}); err == nil || !strings.HasPrefix(err.Error(), "cluster prod: ") {
		t.Errorf("an authority that does not exist: %v", err)
	}
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	if _, err := kube.FromContext(""); err == nil {
		t.Error("there is a cluster without a kubeconfig")
	}
}

// TestRequests checks the exact requests that are sent.
func TestRequests(t *testing.T) {
	var mu sync.Mutex
	var last *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		last = r
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "mind the gap"`)
		if r.URL.Query().Has("watch") {
			return
		}
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
	}))
	defer server.Close()
	warnings := &warnings{}
	c := open(t, &rest.Config{Host: server.URL + "/clusters/a", WarningHandler: warnings, Timeout: time.Hour})

	const (
		proto  = "application/vnd.kubernetes.protobuf"
		asJSON = "application/json"
		list   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		object = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	)
	widgets := kube.Query{Resource: nonsense}
	for name, test := range map[string]struct {
		query  kube.Query
		list   reflector.ListOptions
		watch  *reflector.WatchOptions
		uri    string
		accept string
	}{
		"list": {
			kube.Query{Resource: pods}, reflector.ListOptions{}, nil, "/api/v1/pods", proto + "," + asJSON,
		},
		"any version": {
			kube.Query{Resource: pods}, reflector.ListOptions{Version: "0", Limit: 500}, nil,
			"/api/v1/pods?limit=500&resourceVersion=0", proto + "," + asJSON,
		},
		"not older": {
			kube.Query{Resource: pods}, reflector.ListOptions{Version: "7", NotOlder: true, Limit: 5}, nil,
			"/api/v1/pods?limit=5&resourceVersion=7&resourceVersionMatch=NotOlderThan", proto + "," + asJSON,
		},
		"next page": {
			kube.Query{Resource: pods}, reflector.ListOptions{Continue: "abc", Limit: 5}, nil,
			"/api/v1/pods?continue=abc&limit=5", proto + "," + asJSON,
		},
		"namespace": {
			kube.Query{
				Resource: deployments, Namespace: "shop", LabelSelector: "a=b", FieldSelector: "metadata.name=x",
			}, reflector.ListOptions{}, nil,
			"/apis/apps/v1/namespaces/shop/deployments?fieldSelector=metadata.name%3Dx&labelSelector=a%3Db",
			proto + "," + asJSON,
		},
		"JSON": {
			kube.Query{Resource: pods, JSON: true}, reflector.ListOptions{}, nil, "/api/v1/pods", asJSON,
		},
		"custom": {widgets, reflector.ListOptions{}, nil, "/apis/example.com/v1/nonsenses", asJSON},
		"metadata": {
			kube.Query{Resource: pods, MetadataOnly: true}, reflector.ListOptions{}, nil, "/api/v1/pods",
			proto + list + "," + asJSON + list + "," + asJSON,
		},
		"metadata JSON": {
			kube.Query{Resource: pods, MetadataOnly: true, JSON: true}, reflector.ListOptions{}, nil, "/api/v1/pods",
			asJSON + list + "," + asJSON,
		},
		"tweak": {
			kube.Query{
				Resource: pods,
				Tweak:    func(o *metav1.ListOptions) { *o = metav1.ListOptions{Limit: o.Limit + 1, Watch: true} },
			}, reflector.ListOptions{Limit: 2, Version: "3"}, nil, "/api/v1/pods?limit=3", proto + "," + asJSON,
		},
		"watch": {
			kube.Query{Resource: pods},
			reflector.ListOptions{},
			&reflector.WatchOptions{Version: "9", Timeout: 1500 * time.Millisecond},
			"/api/v1/pods?allowWatchBookmarks=true&resourceVersion=9&timeoutSeconds=2&watch=true",
			proto + "," + asJSON,
		},
		"initial events": {
			kube.Query{Resource: pods},
			reflector.ListOptions{},
			&reflector.WatchOptions{InitialEvents: true},
			"/api/v1/pods?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true",
			proto + "," + asJSON,
		},
		"watch metadata": {
			kube.Query{Resource: pods, MetadataOnly: true},
			reflector.ListOptions{},
			&reflector.WatchOptions{},
			"/api/v1/pods?allowWatchBookmarks=true&watch=true",
			proto + object + "," + asJSON + object + "," + asJSON,
		},
		"tweaked a watch": {
			kube.Query{
				Resource: pods, Tweak: func(o *metav1.ListOptions) { o.Watch, o.AllowWatchBookmarks = false, false },
			},
			reflector.ListOptions{},
			&reflector.WatchOptions{},
			"/api/v1/pods?watch=true",
			proto + "," + asJSON,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := sourceOf(t, c, test.query)
			if test.watch == nil {
				if _, err := s.List(t.Context(), test.list, func(*wire.Object) error { return nil }); err != nil {
					t.Fatal(err)
				}
			} else {
				w := beginWatch(t.Context(), t, s, *test.watch)
				defer w.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			if uri := "/clusters/a" + test.uri; last.RequestURI != uri || last.Header.Get("Accept") != test.accept {
				t.Errorf("sent %s accepting %s\nwant %s accepting %s", last.RequestURI, last.Header.Get("Accept"), uri,
					test.accept)
			}
			if agent := last.UserAgent(); !strings.Contains(agent, "kubernetes/") {
				t.Errorf("sent as %q", agent)
			}
		})
	}
	if warnings.texts["mind the gap"] == 0 || len(warnings.texts) != 1 {
		t.Errorf("warnings %v", warnings.texts)
	}
}

// TestConnections_areUsedAgain checks that connections are reused after complete lists,
// errors, objects and discovery.
func TestConnections_areUsedAgain(t *testing.T) {
	items := strings.Repeat(goodPod+",", 2_000) + goodPod
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/pods":
			_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` +
				items + "]}\n\n"))
		case "/api/v1/namespaces/default/pods/good":
			_, _ = w.Write([]byte(goodPod + "\n"))
		default:
			http.NotFound(w, r)
		}
	}))
	var connections atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := open(t, &rest.Config{Host: server.URL})
	for range 5 {
		n := 0
		if _, err := c.List(t.Context(), kube.Query{Resource: pods}, func(*wire.Object) error {
			n++
			return nil
		}); err != nil || n != 2_001 {
			t.Fatalf("%d pods, %v", n, err)
		}
		if _, err := c.Get(t.Context(), kube.Query{Resource: pods, Namespace: "default"}, "good"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), kube.Query{Resource: pods, Namespace: "default"}, "bad"); err == nil {
			t.Fatal("got what is not there")
		}
		if served, err := sourceOf(t, c, kube.Query{Resource: nonsense}).Served(t.Context()); err != nil || served {
			t.Fatalf("served: %t, %v", served, err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 20 requests in a row", n)
	}
}

type warnings struct{ texts map[string]int }

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	if w.texts == nil {
		w.texts = map[string]int{}
	}
	w.texts[text]++
}
