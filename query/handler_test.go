// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
	"github.com/watershed-project/watershed/query"
	"github.com/watershed-project/watershed/wire"
)

// pod returns a pod with the label app.
func pod(namespace, name, app string) *corev1.Pod {
	p := miniature.Pod(namespace, name, "node-1")
	p.Labels = map[string]string{"app": app}
	return p
}

// shop starts a server with a few pods.
func shop(t *testing.T) *miniature.Server {
	t.Helper()
	s := miniature.New(pod("default", "db", "mysql"), pod("shop", "cart", "web"), pod("shop", "db", "mysql"),
		pod("shop", "search", "web"))
	t.Cleanup(s.Close)
	return s
}

var (
	pods    = query.Resources{podResource: {"app": byLabel("app"), "node": nodeOf}}
	refused = map[string]int{
		"/":                                   http.StatusNotFound,
		"/secrets":                            http.StatusNotFound,
		"/pods/shop/none":                     http.StatusNotFound,
		"/pods/shop":                          http.StatusNotFound,
		"/pods/shop/cart/log":                 http.StatusNotFound,
		"/pods?labelSelector=a%3D%3D%3Db":     http.StatusBadRequest,
		"/pods?labelselector=app%3Dweb":       http.StatusBadRequest,
		"/pods?namespace=shop&namespace=a":    http.StatusBadRequest,
		"/pods?keys=maybe":                    http.StatusBadRequest,
		"/pods?limit=-1":                      http.StatusBadRequest,
		"/pods?limit=1001":                    http.StatusBadRequest,
		"/pods?limit=many":                    http.StatusBadRequest,
		"/pods?index=none&value=web":          http.StatusBadRequest,
		"/pods?index=app":                     http.StatusBadRequest,
		"/pods?value=web":                     http.StatusBadRequest,
		"/pods?%zz":                           http.StatusBadRequest,
		"/pods/shop/cart?labelSelector=app":   http.StatusBadRequest,
		"/pods/shop/cart?namespace=shop":      http.StatusBadRequest,
		"/pods?continue=shop%2Fcart&limit=1;": http.StatusBadRequest,
	}
)

// nodeOf is an index function that decodes the object.
func nodeOf(o *wire.Object) []string {
	p, err := wire.Decode[*corev1.Pod](o)
	if err != nil {
		return nil
	}
	return []string{p.Spec.NodeName}
}

func TestFactory_lists(t *testing.T) {
	h := ofFactory(t, shop(t).Config(), pods, nil)
	for url, want := range map[string]string{
		"/pods":                "default/db shop/cart shop/db shop/search",
		"/pods/":               "default/db shop/cart shop/db shop/search",
		"/pods?namespace=shop": "shop/cart shop/db shop/search",
		"/pods?namespace=sho":  "",
		"/pods?namespace=shop&labelSelector=app%3Dweb":           "shop/cart shop/search",
		"/pods?labelSelector=app%20in%20(mysql,other)":           "default/db shop/db",
		"/pods?labelSelector=":                                   "default/db shop/cart shop/db shop/search",
		"/pods?index=app&value=mysql":                            "default/db shop/db",
		"/pods?index=app&value=mysql&namespace=shop":             "shop/db",
		"/pods?index=app&value=mysql&labelSelector=app%3Dweb":    "",
		"/pods?index=app&value=":                                 "",
		"/pods?index=node&value=node-1&labelSelector=app%3Dweb":  "shop/cart shop/search",
		"/pods?continue=shop%2Fcart":                             "shop/db shop/search",
		"/pods?continue=shop%2Fd":                                "shop/db shop/search",
		"/pods?continue=shop%2Fcart&namespace=default":           "",
		"/pods?index=app&value=mysql&continue=default%2Fdb":      "shop/db",
		"/pods?limit=0&labelSelector=app%3Dmysql&namespace=shop": "shop/db",
	} {
		r := get(t, h, url)
		if got := strings.Join(r.Keys, " "); got != want || len(r.Items) != len(r.Keys) || r.Continue != "" ||
			r.Missing != nil {
			t.Errorf("GET %s: %+v, want %s", url, r, want)
		}
		r = get(t, h, url+map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")]+"keys=true")
		if got := strings.Join(r.Keys, " "); got != want || r.Items != nil || r.Keys == nil {
			t.Errorf("GET %s, keys only: %+v, want %s", url, r, want)
		}
	}
}

func TestFactory_object(t *testing.T) {
	h := ofFactory(t, shop(t).Config(), pods, nil)
	w := send(h, http.MethodGet, "/pods/shop/cart")
	var got corev1.Pod
	expect.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	want := pod("shop", "cart", "web")
	want.ResourceVersion = "2"
	expect.Equal(t, got, *want)
	head := send(h, http.MethodHead, "/pods/shop/cart")
	expect.Equal(t, head.Code, http.StatusOK)
}

func TestFactory_errors(t *testing.T) {
	wantErrors(t, ofFactory(t, shop(t).Config(), pods, &query.Options{Limit: 1000}),
		map[string]int{"/pods?cluster=eu": http.StatusBadRequest})
}

func TestFleet_errors(t *testing.T) {
	h := ofFleet(t, map[string]*rest.Config{"eu": shop(t).Config()}, pods, &query.Options{Limit: 1000})
	inEU := map[string]int{"/pods/shop/cart": http.StatusBadRequest, "/pods?cluster=us": http.StatusNotFound}
	for url, code := range refused {
		inEU[url+map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")]+"cluster=eu"] = code
	}
	delete(inEU, "/pods?continue=shop%2Fcart&limit=1;&cluster=eu")
	for url, code := range inEU {
		wantError(t, h, http.MethodGet, url, code)
	}
}

// wantErrors sends requests that must be refused.
func wantErrors(t *testing.T, h http.Handler, more map[string]int) {
	t.Helper()
	for _, requests := range []map[string]int{refused, more} {
		for url, code := range requests {
			wantError(t, h, http.MethodGet, url, code)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		w := wantError(t, h, method, "/pods", http.StatusMethodNotAllowed)
		expect.Equal(t, w.Header().Get("Allow"), "GET, HEAD")
	}
}

// wantError sends a request and expects an error.
func wantError(t *testing.T, h http.Handler, method, url string, code int) *httptest.ResponseRecorder {
	t.Helper()
	w := send(h, method, url)
	var body struct{ Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != code || body.Error == "" ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s %s: %d %s (%v), want %d", method, url, w.Code, w.Body, err, code)
	}
	return w
}

func TestFleet_lists(t *testing.T) {
	us := miniature.New(pod("shop", "cart", "web"), pod("shop", "db", "mysql"))
	defer us.Close()
	// As texts, keys of eu-1 come before keys of eu.
	h := ofFleet(t, map[string]*rest.Config{"eu": shop(t).Config(), "eu-1": us.Config()}, pods, nil)
	for url, want := range map[string]string{
		"/pods?labelSelector=app%3Dmysql":                   "eu/default/db eu/shop/db eu-1/shop/db",
		"/pods?labelSelector=app%3Dmysql&namespace=shop":    "eu/shop/db eu-1/shop/db",
		"/pods?cluster=eu-1":                                "eu-1/shop/cart eu-1/shop/db",
		"/pods?index=app&value=web":                         "eu/shop/cart eu/shop/search eu-1/shop/cart",
		"/pods?index=app&value=web&cluster=eu-1":            "eu-1/shop/cart",
		"/pods?index=app&value=web&continue=eu%2Fshop%2Fd":  "eu/shop/search eu-1/shop/cart",
		"/pods?continue=eu%2Fshop%2Fdb":                     "eu/shop/search eu-1/shop/cart eu-1/shop/db",
		"/pods?continue=eu-0%2Fx&namespace=shop":            "eu-1/shop/cart eu-1/shop/db",
		"/pods?continue=eu-1%2Fshop%2Fcart&namespace=shop":  "eu-1/shop/db",
		"/pods?cluster=eu&index=node&value=node-1&keys=1":   "eu/default/db eu/shop/cart eu/shop/db eu/shop/search",
		"/pods?cluster=eu&index=node&value=node-2&keys=1":   "",
		"/pods?continue=us%2Fa&index=node&value=node-1":     "",
		"/pods?namespace=shop&cluster=eu&continue=eu%2Fzzz": "",
	} {
		r := get(t, h, url)
		if got := strings.Join(r.Keys, " "); got != want || r.Missing != nil {
			t.Errorf("GET %s: %+v, want %s", url, r, want)
		}
	}
	w := send(h, http.MethodGet, "/pods/shop/db?cluster=eu-1")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"kind":"Pod"`) ||
		!strings.Contains(w.Body.String(), `"resourceVersion":"2"`) {
		t.Errorf("one object: %d %s", w.Code, w.Body)
	}
}

func TestHandler_pages(t *testing.T) {
	server := shop(t)
	for name, opts := range map[string]*query.Options{
		"limit":      {Limit: 2},
		"bytes":      {Bytes: 300},
		"one object": {Bytes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := ofFactory(t, server.Config(), pods, opts)
			var keys []string
			after, pages := "", 0
			for more := true; more; pages++ {
				r := get(t, h, "/pods?continue="+after)
				if len(r.Items) != len(r.Keys) {
					t.Errorf("%d items, %d keys", len(r.Items), len(r.Keys))
				}
				keys = append(keys, r.Keys...)
				after, more = r.Continue, r.Continue != ""
			}
			expect.Equal(t, strings.Join(keys, " "), "default/db shop/cart shop/db shop/search")
			expect.Equal(t, pages, map[string]int{"limit": 2, "bytes": 2, "one object": 4}[name])
		})
	}
}

func TestFactory_notSynced(t *testing.T) {
	f := newFactory(t, shop(t).Config())
	h, err := query.NewFactory(f, pods, nil)
	expect.NoError(t, err)
	defer h.Close()
	for _, url := range []string{"/pods", "/pods/shop/cart", "/pods?index=app&value=web"} {
		w := wantError(t, h, http.MethodGet, url, http.StatusServiceUnavailable)
		expect.Equal(t, w.Header().Get("Retry-After"), "1")
	}
	background(t, f.Run)
	expect.NoError(t, f.WaitForSync(t.Context()))
	expect.Equal(t, len(get(t, h, "/pods").Keys), 4)
}

func TestFleet_notSynced(t *testing.T) {
	f := newFleet(t, []string{"pods"}, map[string]*rest.Config{
		"eu": shop(t).Config(),
		"us": {Host: "http://127.0.0.1:1"},
	})
	h, err := query.NewFleet(f, query.Resources{podResource: nil, deploymentResource: nil}, nil)
	expect.NoError(t, err)
	defer h.Close()
	wantError(t, h, http.MethodGet, "/pods", http.StatusServiceUnavailable)
	background(t, f.Run)
	expect.NoError(t, f.WaitForSync(t.Context()))
	r := get(t, h, "/pods")
	expect.Equal(t, len(r.Keys), 4)
	expect.Equal(t, r.Missing, []string{"us"})
	expect.Equal(t, get(t, h, "/pods?cluster=eu").Missing, nil)
	wantError(t, h, http.MethodGet, "/pods?cluster=us", http.StatusServiceUnavailable)
	// The fleet does not mirror deployments, but us has not been seen yet.
	wantError(t, h, http.MethodGet, "/deployments.apps", http.StatusServiceUnavailable)
	wantError(t, h, http.MethodGet, "/deployments.apps?cluster=eu", http.StatusNotFound)
}

func TestNew_errors(t *testing.T) {
	f := newFactory(t, &rest.Config{Host: "http://127.0.0.1:1"})
	older := podResource
	older.Version = "v1beta1"
	for name, r := range map[string]query.Resources{
		"none":         nil,
		"empty":        {{}: nil},
		"two versions": {podResource: nil, older: nil},
	} {
		if _, err := query.NewFactory(f, r, nil); err == nil {
			t.Errorf("factory, %s: no error", name)
		}
		if _, err := query.NewFleet(newFleet(t, nil, nil), r, nil); err == nil {
			t.Errorf("fleet, %s: no error", name)
		}
	}
}

// A cluster that has two names is mirrored once, and found by both.
func TestFleet_alias(t *testing.T) {
	server := shop(t)
	h := ofFleet(t, map[string]*rest.Config{"eu": server.Config(), "europe": server.Config()}, pods, nil)
	all := get(t, h, "/pods").Keys
	expect.Equal(t, len(all), 4)
	for _, name := range []string{"eu", "europe"} {
		expect.Equal(t, get(t, h, "/pods?cluster="+name).Keys, all)
		if w := send(h, http.MethodGet, "/pods/shop/db?cluster="+name); w.Code != http.StatusOK {
			t.Errorf("one object of %s: %d %s", name, w.Code, w.Body)
		}
	}
}

// A factory that has ended has no objects, which is not the same as an empty cluster.
func TestFactory_stopped(t *testing.T) {
	f := newFactory(t, shop(t).Config())
	h, err := query.NewFactory(f, pods, nil)
	expect.NoError(t, err)
	defer h.Close()
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		expect.NoError(t, f.WaitForSync(ctx))
		expect.Equal(t, get(t, h, "/pods?index=app&value=web").Keys, []string{"shop/cart", "shop/search"})
		cancel()
		expect.NoError(t, <-ended)
		wantError(t, h, http.MethodGet, "/pods", http.StatusServiceUnavailable)
	}
}
