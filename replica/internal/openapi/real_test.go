// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/discovery"
	"github.com/watershed-project/watershed/replica/internal/openapi"
)

// TestDocuments_areTheServers serves a real server's documents below a prefix that needs
// escaping, and reads them there with clients.
func TestDocuments_areTheServers(t *testing.T) {
	k := kubetest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster, err := kube.FromConfig(k.Config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.CloseIdleConnections()
	resources, err := cluster.Resources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	documents, found := openapi.New(func() *kube.Cluster { return cluster }, nil),
		discovery.New(resources, nil, nil, nil)
	const prefix = "/clusters/a%2Fb"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, below := strings.CutPrefix(r.URL.Path, prefix)
		if !below || !documents.Serve(w, r, path) && !found.Serve(w, r, path) {
			t.Errorf("%s %s is not served", r.Method, r.URL)
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	root := server.URL + strings.ReplaceAll(prefix, "%", "%25")
	replica, err := kube.FromConfig(&rest.Config{Host: root}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer replica.CloseIdleConnections()

	t.Run("bodies", func(t *testing.T) { compareBodies(ctx, t, cluster, replica) })
	t.Run("kubectl", func(t *testing.T) { compareKubectl(ctx, t, k, root) })
	t.Run("types", func(t *testing.T) {
		if err := k.CreateManifest(ctx, geese); err != nil {
			t.Fatal(err)
		}
		for {
			documents.Changed()
			if _, body := fetch(ctx, t, replica, "/openapi/v3/apis/example.com/v1",
				"application/json"); strings.Contains(body, "how large it is") {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatal("the new type does not appear")
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

const geese = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: geese.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: geese, singular: goose, kind: Goose}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer, description: how large it is}}}}}
`

// compareBodies checks that every document in every encoding is identical to the
// server's.
func compareBodies(ctx context.Context, t *testing.T, origin, replica *kube.Cluster) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	_, body := fetch(ctx, t, origin, "/openapi/v3", "application/json")
	if err := json.Unmarshal([]byte(body), &index); err != nil {
		t.Fatal(err)
	}
	const proto2, proto3 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
		"application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	targets := map[string][]string{
		"/openapi/v3": {"", "application/json", proto3, "text/html"},
		"/version":    {"", "application/json"},
		"/openapi/v2": {"", "application/json", proto2, "text/html"},
	}
	for _, at := range index.Paths {
		targets[at.ServerRelativeURL] = []string{"", "application/json", proto3, "text/html"}
		path, _, _ := strings.Cut(at.ServerRelativeURL, "?")
		targets[path] = []string{"application/json"}
	}
	if len(index.Paths) < 10 {
		t.Fatalf("index has %d documents", len(index.Paths))
	}
	compared := 0
	for target, accepts := range targets {
		for _, accept := range accepts {
			want, body := fetch(ctx, t, origin, target, accept)
			got, copied := fetch(ctx, t, replica, target, accept)
			if body != copied {
				t.Errorf("GET %s as %q: %d bytes that are not the server's %d", target, accept, len(copied), len(body))
			}
			if want.StatusCode != got.StatusCode {
				t.Errorf("GET %s as %q: %s, want %s", target, accept, got.Status, want.Status)
			}
			for _, name := range []string{"Content-Type", "Etag", "Cache-Control"} {
				if w, g := want.Header.Get(name), got.Header.Get(name); w != g {
					t.Errorf("GET %s as %q: %s is %q, want %q", target, accept, name, g, w)
				}
			}
			compared++
		}
	}
	t.Logf("%d answers compared", compared)
	for _, target := range []string{"/openapi/v3/", "/openapi/v3/nope", "/openapi/v3/api/v1?hash=old"} {
		want, _ := fetch(ctx, t, origin, target, "")
		if got, _ := fetch(ctx, t, replica, target, ""); got.StatusCode != want.StatusCode {
			t.Errorf("GET %s: %s, want %s", target, got.Status, want.Status)
		}
	}
}

func fetch(ctx context.Context, t *testing.T, c *kube.Cluster, target, accept string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
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
	return resp, string(body)
}

// compareKubectl checks that kubectl prints the same with either server.
func compareKubectl(ctx context.Context, t *testing.T, k *kubetest.Cluster, root string) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, clusters: [{name: x, cluster: {server: " + root +
		"}}], contexts: [{name: x, context: {cluster: x}}], current-context: x}"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"explain", "deployments.spec.template.spec.containers.image"},
		{"explain", "pods", "--recursive"},
		{"explain", "hpa.spec", "--api-version=autoscaling/v1"},
		{"explain", "pods.spec", "--output=plaintext-openapiv2"},
		{"version", "-o", "json"},
	} {
		want, err := k.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, k.KubectlPath(),
			append([]string{"--kubeconfig", path, "--cache-dir", t.TempDir()}, args...)...)
		var trouble strings.Builder
		cmd.Stderr = &trouble
		got, err := cmd.Output()
		if err != nil || string(got) != want {
			t.Errorf("kubectl %s: %v\n%s\n%.500s\nwant\n%.500s", strings.Join(args, " "), err, &trouble, got, want)
		}
	}
}
