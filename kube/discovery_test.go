// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

// testDiscovery compares with client-go's discovery, using the aggregated document and
// the separate ones. It imitates a server without the aggregated document by dropping the
// request for it.
func testDiscovery(t *testing.T, k *kubetest.Cluster) {
	ctx := patient(t)
	serve(ctx, t, k, open(t, k.Config()), "geese", "Goose")
	broken := strings.NewReplacer("NAME", "v1.broken.example.com", "GROUP", "broken.example.com").Replace(apiService)
	create(ctx, t, k, broken)

	for _, way := range []string{"aggregated", "legacy"} {
		t.Run(way, func(t *testing.T) {
			cfg := k.Config()
			client, err := discovery.NewDiscoveryClientForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if way == "legacy" {
				client.UseLegacyDiscovery = true
				cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return plain{rt} }
			}
			c := open(t, cfg)
			var resources []kube.Resource
			expect.NoError(t, expect.Until(ctx, func() error {
				var err error
				resources, err = c.Resources(ctx)
				var broken *kube.GroupError
				if !errors.As(err, &broken) || broken.GroupVersion.Group != "broken.example.com" {
					return fmt.Errorf("discovery says %w", err)
				}
				if errors.Is(err, kube.ErrStale) != (way == "aggregated") {
					t.Errorf("stale, the %s way: %v", way, err)
				}
				return nil
			}))
			_, lists, err := client.ServerGroupsAndResources()
			if failed, ok := discovery.GroupDiscoveryFailedErrorGroups(err); !ok || len(failed) != 1 {
				t.Fatal(err)
			}
			preferred, err := client.ServerPreferredResources()
			if !discovery.IsGroupDiscoveryFailedError(err) {
				t.Fatal(err)
			}
			want := resourcesOf(t, lists, preferredOf(preferred))
			sorted := slices.Clone(resources)
			slices.SortFunc(sorted, byName)
			if diff := gocmp.Diff(want, sorted, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("client-go has (-), we have (+):\n%s", diff)
			}
			t.Logf("%d resources", len(resources))
			r, err := c.Resolve(ctx, schema.GroupVersionKind{Group: "apps", Kind: "Deployment"})
			if err != nil || r.GroupVersionResource != deployments {
				t.Errorf("resolved %+v, %v while a group is broken", r, err)
			}
			_, err = c.Resolve(ctx, schema.GroupVersionKind{Group: "broken.example.com", Version: "v1", Kind: "Thing"})
			if !meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "broken.example.com/v1") {
				t.Errorf("resolve in the broken group: %v", err)
			}
		})
	}
	if err := k.DeleteManifest(ctx, definition("geese", "Goose")+broken); err != nil {
		t.Error(err)
	}
	c := open(t, k.Config())
	// Discovery lists the type for a moment longer, and later tests read all that it lists.
	expect.NoError(t, expect.Until(ctx, func() error {
		resources, err := c.Resources(ctx)
		if slices.ContainsFunc(resources, func(r kube.Resource) bool { return r.Resource == "geese" }) {
			return errors.New("discovery still lists geese")
		}
		return err
	}))
}

// apiService registers an API server that does not exist.
const apiService = `
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: NAME}
spec:
  group: GROUP
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: none, namespace: default}
`

// plain requests plain JSON whatever the client requested.
type plain struct{ http.RoundTripper }

func (p plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json")
	return p.RoundTripper.RoundTrip(r)
}

func (p plain) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }

func byName(a, b kube.Resource) int { return cmp.Compare(a.String(), b.String()) }

func preferredOf(lists []*metav1.APIResourceList) map[string]bool {
	all := map[string]bool{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			all[l.GroupVersion+" "+r.Name] = true
		}
	}
	return all
}

func resourcesOf(t *testing.T, lists []*metav1.APIResourceList, preferred map[string]bool) []kube.Resource {
	t.Helper()
	var all []kube.Resource
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		below := map[string][]kube.Subresource{}
		for _, r := range l.APIResources {
			name, sub, ok := strings.Cut(r.Name, "/")
			if !ok {
				continue
			}
			kind := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
			if kind.Version == "" || kind.GroupVersion() == gv { // client-go fills in some of them
				kind = gv.WithKind(r.Kind)
			}
			below[name] = append(below[name], kube.Subresource{Name: sub, GroupVersionKind: kind, Verbs: r.Verbs})
		}
		for _, r := range l.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			all = append(all, kube.Resource{
				GroupVersionResource: gv.WithResource(r.Name),
				Kind:                 r.Kind,
				Singular:             r.SingularName,
				Namespaced:           r.Namespaced,
				Verbs:                r.Verbs,
				ShortNames:           r.ShortNames,
				Categories:           r.Categories,
				Preferred:            preferred[l.GroupVersion+" "+r.Name],
				Subresources:         below[r.Name],
			})
		}
	}
	slices.SortFunc(all, byName)
	return all
}

// TestResolve_asksSeldom checks how often discovery runs: once for hits, at most every
// two seconds for misses, and once for many concurrent calls.
func TestResolve_asksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		// A transport without a network, because the time of the test is virtual.
		const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		respond := func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			time.Sleep(100 * time.Millisecond)
			body := `{"items":[]}`
			if r.URL.Path == "/api" {
				body = `{"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"pods",` +
					`"responseKind":{"version":"v1","kind":"Pod"},"scope":"Namespaced"}]}]}]}`
			}
			return &http.Response{
				StatusCode: http.StatusOK,
				Header:     http.Header{"Content-Type": {aggregated}},
				Body:       io.NopCloser(strings.NewReader(body)),
				Request:    r,
			}, nil
		}
		c := open(t, &rest.Config{Host: "http://none", Transport: roundTrip(respond)})
		ctx := patient(t)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if r, err := c.ResolveResource(ctx, pods); err != nil || r.Kind != "Pod" {
					t.Errorf("pods: %+v, %v", r, err)
				}
				if _, err := c.ResolveResource(ctx, nonsense); !meta.IsNoMatchError(err) {
					t.Errorf("nonsense: %v", err)
				}
			})
		}
		all.Wait()
		if n := asked.Load(); n != 2 {
			t.Errorf("%d requests, want one each for /api and /apis", n)
		}
		time.Sleep(2100 * time.Millisecond)
		for range 3 {
			if _, err := c.ResolveResource(ctx, nonsense); !meta.IsNoMatchError(err) {
				t.Errorf("nonsense: %v", err)
			}
		}
		if n := asked.Load(); n != 4 {
			t.Errorf("%d requests after two seconds, want two more", n)
		}
	})
}

// roundTrip is a transport that consists of a function.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestResources_boundsDocuments checks that a small response cannot become a large one in
// memory.
func TestResources_boundsDocuments(t *testing.T) {
	for name, document := range map[string]string{
		"bytes":   `{"versions":["` + strings.Repeat("x", 17<<20) + `"]}`,
		"objects": `{"resources":[` + strings.Repeat("{},", 500_000) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var zipped bytes.Buffer
			z := gzip.NewWriter(&zipped)
			_, _ = io.WriteString(z, document)
			_ = z.Close()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if name == "objects" && r.URL.Path == "/api" {
					_, _ = io.WriteString(w, `{"versions":["v1"]}`)
					return
				}
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(zipped.Bytes())
			}))
			defer server.Close()
			_, err := open(t, &rest.Config{Host: server.URL}).Resources(patient(t))
			if err == nil || !strings.Contains(err.Error(), "the response ") {
				t.Errorf("%.200s", fmt.Sprint(err))
			}
		})
	}
}
