// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package discovery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/discovery"
)

const (
	aggregated      = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedYAML  = "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedProto = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedOld   = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)

// types are a custom type in two versions, one whose group is earlier by its name and
// later by its version, and an API server that does not exist.
const types = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: geese.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: geese, singular: goose, kind: Goose, shortNames: [gs], categories: [all]}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}, subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: drafts.beta.example.com}
spec:
  group: beta.example.com
  scope: Cluster
  names: {plural: drafts, singular: draft, kind: Draft}
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}, subresources: {status: {}}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.broken.example.org}
spec:
  group: broken.example.org
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: none, namespace: default}
`

// answer is the part of a response in which both servers must agree.
type answer struct {
	Code                     int
	Type, CacheControl, Vary string
	Tagged                   bool
	ForPeople                bool
	Kind, APIVersion         string
	Document                 any
	reason                   metav1.StatusReason
	etag                     string
	length                   int
}

// TestDocuments_areTheServers sends the same requests to a real API server and to the
// documents.
func TestDocuments_areTheServers(t *testing.T) {
	k := kubetest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	origin, err := kube.FromConfig(k.Config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer origin.CloseIdleConnections()
	if err := k.CreateManifest(ctx, types); err != nil {
		t.Fatal(err)
	}
	resources, stale := discover(ctx, t, origin)
	server := serve(t, discovery.New(resources, nil, stale, nil))
	replica, err := kube.FromConfig(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer replica.CloseIdleConnections()

	paths := []string{"/api", "/apis", "/api/", "/api/v1", "/apis/apps", "/apis/apps/", "/apis/apps/v1",
		"/apis/example.com", "/apis/example.com/v1",
		"/apis/example.com/v1beta1", "/apis/autoscaling", "/apis/autoscaling/v1", "/apis/broken.example.org",
		"/apis/broken.example.org/v1", "/api?pretty=true"}
	// application/* and /apis/ are left out: some of the server's handlers refuse them
	// and others do not.
	accepts := []string{"", "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf,application/json", "application/json;q=0.3, application/yaml;q=0.5",
		"*/*, application/yaml", "application/json;pretty=1",
		"text/html", "application/cbor", "application/json;as=Table;g=meta.k8s.io;v=v1",
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
		aggregated, aggregatedYAML, aggregatedProto, aggregatedOld,
		aggregated + "," + aggregatedOld + ",application/json", aggregatedOld + ",application/json",
		"application/json," + aggregated, aggregatedProto + "," + aggregated, aggregated + ";profile=nopeer",
		"application/json;as=APIGroupDiscoveryList"}
	compared := 0
	for _, path := range paths {
		for _, accept := range accepts {
			want, got := ask(ctx, t, origin, path, accept, ""), ask(ctx, t, replica, path, accept, "")
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(answer{})); diff != "" {
				t.Errorf("GET %s as %q: server has (-), documents have (+):\n%s", path, accept, diff)
			}
			if want.reason != got.reason {
				t.Errorf("GET %s as %q: %s, want %s", path, accept, got.reason, want.reason)
			}
			if got.Tagged {
				if again := ask(ctx, t, replica, path, accept, got.etag); again.Code != http.StatusNotModified ||
					again.length > 0 || again.etag != got.etag {
					t.Errorf("GET %s as %q again: %+v", path, accept, again)
				}
			}
			compared++
		}
	}
	t.Logf("%d resources, %d answers compared", len(resources), compared)

	for _, path := range []string{"/api/v2", "/apis/nope", "/apis/apps/v7"} {
		if want, got := ask(ctx, t, origin, path, "", ""), ask(ctx, t, replica, path, "", ""); want.Code != got.Code {
			t.Errorf("GET %s: %d, want %d", path, got.Code, want.Code)
		}
	}
	again, gone := discover(ctx, t, replica)
	if diff := cmp.Diff(readable(resources), again); diff != "" {
		t.Errorf("what is served (-) and what is discovered (+):\n%s", diff)
	}
	if !slices.Equal(gone, stale) {
		t.Errorf("stale are %v, want %v", gone, stale)
	}
}

// discover waits until the server has the types, and reports that one is stale.
func discover(ctx context.Context, t *testing.T, c *kube.Cluster) ([]kube.Resource, []schema.GroupVersion) {
	t.Helper()
	for {
		resources, err := c.Resources(ctx)
		var missing *kube.GroupError
		has := func(name, version string) bool {
			return slices.ContainsFunc(resources, func(r kube.Resource) bool {
				return r.Resource == name && r.Version == version
			})
		}
		if has("geese", "v1beta1") && has("drafts", "v1alpha1") && errors.As(err, &missing) &&
			errors.Is(err, kube.ErrStale) {
			return resources, []schema.GroupVersion{missing.GroupVersion}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d resources, %v", len(resources), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// serve serves documents at the root.
func serve(t *testing.T, d *discovery.Documents) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.Serve(w, r, r.URL.Path) {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// ask sends one request, and returns the response reduced to resources that can be read.
func ask(ctx context.Context, t *testing.T, c *kube.Cluster, path, accept, etag string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{
		Code: resp.StatusCode, Type: resp.Header.Get("Content-Type"), CacheControl: resp.Header.Get("Cache-Control"),
		Vary: strings.Join(resp.Header.Values("Vary"), ","), Tagged: strings.HasPrefix(resp.Header.Get("Etag"), `"`),
		ForPeople: bytes.Count(body, []byte("\n")) > 1, etag: resp.Header.Get("Etag"), length: len(body),
	}
	if strings.HasPrefix(a.Type, runtime.ContentTypeProtobuf) {
		a.ForPeople = false // protobuf may contain any byte
	}
	if strings.HasPrefix(a.Type, "application/") {
		a.decode(t, body)
	}
	return a
}

// decode decodes a document in any encoding.
func (a *answer) decode(t *testing.T, body []byte) {
	t.Helper()
	var meta metav1.TypeMeta
	var read func(into any) error
	if raw, ok := bytes.CutPrefix(body, []byte("k8s\x00")); ok {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(raw); err != nil {
			t.Fatal(err)
		}
		meta = metav1.TypeMeta{Kind: envelope.Kind, APIVersion: envelope.APIVersion}
		read = func(into any) error { return into.(interface{ Unmarshal([]byte) error }).Unmarshal(envelope.Raw) }
	} else {
		text, err := yaml.ToJSON(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &meta); err != nil {
			t.Fatal(err)
		}
		read = func(into any) error { return json.Unmarshal(text, into) }
	}
	a.Kind, a.APIVersion = meta.Kind, meta.APIVersion
	kinds := map[string]any{
		"APIGroupDiscoveryList": &apidiscoveryv2.APIGroupDiscoveryList{}, "APIVersions": &metav1.APIVersions{},
		"APIGroupList": &metav1.APIGroupList{},
		"APIGroup":     &metav1.APIGroup{}, "APIResourceList": &metav1.APIResourceList{}, "Status": &metav1.Status{},
	}
	into := kinds[meta.Kind]
	if into == nil {
		t.Fatalf("%q is no kind of document: %.200s", meta.Kind, body)
	}
	if err := read(into); err != nil {
		t.Fatalf("%s: %v", meta.Kind, err)
	}
	reflect.ValueOf(into).Elem().FieldByName("TypeMeta").SetZero()
	switch doc := into.(type) {
	case *apidiscoveryv2.APIGroupDiscoveryList:
		restrictAggregated(doc)
	case *metav1.APIVersions:
		for i := range doc.ServerAddressByClientCIDRs {
			doc.ServerAddressByClientCIDRs[i].ServerAddress = "" // each server has its own
		}
	case *metav1.APIGroupList:
		doc.Groups = slices.DeleteFunc(doc.Groups, func(g metav1.APIGroup) bool {
			return slices.Contains(unreadable, g.Name)
		})
	case *metav1.APIResourceList:
		restrict(doc)
	case *metav1.Status:
		a.reason = doc.Reason
		return // the text differs between handlers of one server
	}
	a.Document = into
}

// unreadable are groups without readable resources.
var unreadable = []string{"authentication.k8s.io", "authorization.k8s.io"}

// readable returns resources without the parts that the documents leave out.
func readable(all []kube.Resource) []kube.Resource {
	var some []kube.Resource
	for _, r := range all {
		if r.Verbs = reading(r.Verbs); len(r.Verbs) == 0 {
			continue
		}
		below := r.Subresources
		r.Subresources = nil
		for _, s := range below {
			if s.Verbs = reading(s.Verbs); len(s.Verbs) > 0 {
				r.Subresources = append(r.Subresources, s)
			}
		}
		some = append(some, r)
	}
	return some
}

func reading(verbs []string) []string {
	return slices.DeleteFunc(slices.Clone(verbs), func(v string) bool {
		return v != "get" && v != "list" && v != "watch"
	})
}

func restrict(list *metav1.APIResourceList) {
	var some []metav1.APIResource
	for _, r := range list.APIResources {
		r.Verbs, r.StorageVersionHash = reading(r.Verbs), ""
		if len(r.Verbs) > 0 {
			some = append(some, r)
		}
	}
	list.APIResources = some
}

func restrictAggregated(list *apidiscoveryv2.APIGroupDiscoveryList) {
	for i := range list.Items {
		g := &list.Items[i]
		for j := range g.Versions {
			v := &g.Versions[j]
			var some []apidiscoveryv2.APIResourceDiscovery
			for _, r := range v.Resources {
				if r.Verbs = reading(r.Verbs); len(r.Verbs) == 0 {
					continue
				}
				below := r.Subresources
				r.Subresources = nil
				for _, s := range below {
					if s.Verbs = reading(s.Verbs); len(s.Verbs) > 0 {
						r.Subresources = append(r.Subresources, s)
					}
				}
				some = append(some, r)
			}
			v.Resources = some
		}
	}
	list.Items = slices.DeleteFunc(list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool {
		return slices.Contains(unreadable, g.Name)
	})
}
