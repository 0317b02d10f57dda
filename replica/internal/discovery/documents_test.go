// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package discovery_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func resource(group, version, name string, verbs ...string) kube.Resource {
	return kube.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: name},
		Kind:                 "Kind", Singular: "kind", Namespaced: true, Verbs: verbs,
	}
}

// get returns the response to one request.
func get(d *discovery.Documents, method, path, accept string) (*httptest.ResponseRecorder, bool) {
	r := httptest.NewRequest(method, "https://example.com/clusters/x"+path, nil)
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	served := d.Serve(w, r, path)
	return w, served
}

// TestServe_leavesOtherPathsAlone: another handler serves the objects below the same
// root.
func TestServe_leavesOtherPathsAlone(t *testing.T) {
	d := discovery.New([]kube.Resource{
		resource("", "v1", "pods", "get"), resource("apps", "v1", "deployments", "list"),
	}, nil, nil, nil)
	for _, path := range []string{"", "/", "/apis/", "/api", "/api/v1", "/apis/apps/v1/"} {
		_, served := get(d, http.MethodGet, path, "*/*")
		if want := len(path) > 1; served != want {
			t.Errorf("%q: served is %t", path, served)
		}
	}
	for _, path := range []string{
		"/api/v1/pods", "/apis/apps/v1/deployments", "/apis/apps/v2", "/apis/batch", "/api/apps", "/version",
		"/apis//v1", "/apis//",
	} {
		if w, served := get(d, http.MethodGet, path, "*/*"); served || w.Body.Len() > 0 {
			t.Errorf("%q is served: %s", path, w.Body)
		}
	}
	if w, served := get(d, http.MethodDelete, "/apis/apps", "*/*"); !served || w.Code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d", w.Code)
	}
}

// TestNew_unmirroredHaveNoVerbs: a resource that is not mirrored can be found by its
// name, unless another resource has that name, and has no verbs.
func TestNew_unmirroredHaveNoVerbs(t *testing.T) {
	hidden := []kube.Resource{
		resource("", "v1", "secrets", "get", "list"), resource("metrics", "v1", "pods", "list"),
		resource("other", "v1", "things", "list", "watch"),
	}
	for i := range hidden {
		hidden[i].Categories, hidden[i].ShortNames = []string{"all"}, []string{"x"}
		hidden[i].Subresources = []kube.Subresource{{Name: "status", Verbs: []string{"get"}}}
	}
	d := discovery.New([]kube.Resource{resource("", "v1", "pods", "get")}, hidden, nil, nil)
	w, _ := get(d, http.MethodGet, "/api/v1", "application/json")
	want := `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"kind","namespaced":true,"kind":"Kind","verbs":["get"]},` +
		`{"name":"secrets","singularName":"kind","namespaced":true,"kind":"Kind","verbs":[],"shortNames":["x"]}]}`
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("/api/v1 is\n%s, want\n%s", got, want)
	}
	w, _ = get(d, http.MethodGet, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	want = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"other"},"versions":[{"version":"v1","resources":[` +
		`{"resource":"things","responseKind":{"group":"other","version":"v1","kind":"Kind"},"scope":"Namespaced","singularResource":"kind","verbs":[],"shortNames":["x"]}],"freshness":"Current"}]}]}`
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("/apis is\n%s, want\n%s", got, want)
	}
	if len(hidden[0].Verbs) != 2 || len(hidden[0].Categories) != 1 {
		t.Errorf("the caller's resource is now %+v", hidden[0])
	}
}

// TestNew_isEmptyOfWhatCannotBeRead: a resource without read verbs is left out, and so is
// a group that has no other. A version whose resources are not known is listed.
func TestNew_isEmptyOfWhatCannotBeRead(t *testing.T) {
	created := resource("authentication.k8s.io", "v1", "tokenreviews", "create")
	d := discovery.New([]kube.Resource{created, resource("apps", "v1", "deployments", "create", "watch", "get")}, nil,
		[]schema.GroupVersion{
			{Group: "apps", Version: "v2"},
			{Group: "apps", Version: "v1"},
			{Group: "gone", Version: "v1"},
		}, nil)
	w, _ := get(d, http.MethodGet, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	want := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[` +
		`{"metadata":{"name":"apps"},"versions":[` +
		`{"version":"v1","resources":[{"resource":"deployments","responseKind":{"group":"","version":"","kind":"Kind"},"scope":"Namespaced","singularResource":"kind","verbs":["watch","get"]}],"freshness":"Current"},` +
		`{"version":"v2","freshness":"Stale"}]},` +
		`{"metadata":{"name":"gone"},"versions":[{"version":"v1","freshness":"Stale"}]}]}`
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("/apis is\n%s, want\n%s", got, want)
	}
	if len(created.Verbs) != 1 || created.Verbs[0] != "create" {
		t.Errorf("the caller's verbs are now %v", created.Verbs)
	}
	if w, _ := get(d, http.MethodGet, "/apis/gone/v1", "*/*"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("stale version: %d", w.Code)
	}
	empty := discovery.New(nil, nil, nil, nil)
	for path, want := range map[string]string{"/api": `"versions":[]`, "/apis": `"groups":[]`} {
		if w, served := get(empty, http.MethodGet, path, ""); !served || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s of nothing: %s", path, w.Body)
		}
	}
}

// TestNew_ordersGroups: in the older list, groups of definitions are ordered by their
// smallest version, including versions that the documents do not list. A group after them
// that is out of order has a lower priority, and stays there.
func TestNew_ordersGroups(t *testing.T) {
	var all []kube.Resource
	for _, at := range []schema.GroupVersion{
		{Group: "batch", Version: "v1"}, {Group: "apps", Version: "v1"}, // never sorted
		{Group: "b.example.com", Version: "v1beta1"}, {Group: "c.example.com", Version: "v2"},
		{Group: "d.example.com", Version: "v1"}, {Group: "a.example.org", Version: "v1"},
	} {
		all = append(all, resource(at.Group, at.Version, "things", "get"))
	}
	groups := regexp.MustCompile(`"name":"([^"]*)"`)
	for _, c := range []struct {
		accept   string
		unlisted []schema.GroupVersion
		want     string
	}{
		{"", nil, "batch apps d.example.com b.example.com c.example.com a.example.org"},
		{
			"", []schema.GroupVersion{
				{Group: "c.example.com", Version: "v1"},
				{Group: "nothing", Version: "v1"},
			}, "batch apps c.example.com d.example.com b.example.com a.example.org",
		},
		{aggregated, nil, "batch apps b.example.com c.example.com d.example.com a.example.org"},
	} {
		w, _ := get(discovery.New(all, nil, nil, c.unlisted), http.MethodGet, "/apis", c.accept)
		var names []string
		for _, m := range groups.FindAllStringSubmatch(w.Body.String(), -1) {
			names = append(names, m[1])
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q with %v: %s, want %s", c.accept, c.unlisted, got, c.want)
		}
	}
}

// TestServe_namesItsAddress: the document has the address of the connection or, if there
// is none, the host of the request.
func TestServe_namesItsAddress(t *testing.T) {
	d := discovery.New([]kube.Resource{resource("", "v1", "pods", "get")}, nil, nil, nil)
	want := func(body, address string) {
		t.Helper()
		if text := `"versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"` +
			address + `"}]`; !strings.Contains(body, text) {
			t.Errorf("/api is %s, want %s", body, text)
		}
	}
	w, _ := get(d, http.MethodGet, "/api", "")
	want(w.Body.String(), "example.com")
	for range 2 {
		server := serve(t, d)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "replica.example.com"
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		server.Close()
		if err != nil {
			t.Fatal(err)
		}
		want(string(body), strings.TrimPrefix(server.URL, "http://"))
	}
}

// TestServe_compressesWhatIsLong: a long document is compressed once, for any number of
// concurrent clients.
func TestServe_compressesWhatIsLong(t *testing.T) {
	var many []kube.Resource
	for i := range 2000 {
		many = append(many, resource(fmt.Sprintf("group-%d.example.com", i/20), "v1", fmt.Sprintf("resource-%d", i),
			"get", "list", "watch"))
	}
	d := discovery.New(many, nil, nil, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			w, _ := get(d, http.MethodGet, "/apis",
				"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			if w.Header().Get("Content-Encoding") != "gzip" || len(w.Header().Values("Vary")) != 2 {
				t.Errorf("header is %v", w.Header())
				return
			}
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Error(err)
				return
			}
			if text, err := io.ReadAll(z); err != nil || strings.Count(string(text), "resource-") != len(many) {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
	all.Wait()
}
