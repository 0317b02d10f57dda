// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// keyed adds the header of a client that distinguishes objects of different clusters.
type keyed struct{ next http.RoundTripper }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range keyedByCluster {
		r.Header[name] = values
	}
	return k.next.RoundTrip(r)
}

// testFleetConsent: kubectl get can watch the fleet in every output format, and a client
// that may file objects by namespace and name cannot.
func testFleetConsent(t *testing.T, p *pair) {
	p.fill(t, "consent", 3)
	k := terminal{p.clusters[0].KubectlPath(), filepath.Join(t.TempDir(), "fleet"), t.TempDir()}
	if err := p.process.WriteKubeconfig(k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	// kubectl does not print why discovery is refused, so it has the documents before.
	if o := k.run(t.Context(), words("--context fleet get configmaps -n consent")...); o.code != 0 {
		t.Fatal(o.stderr)
	}
	for line, want := range map[string]string{
		"get configmaps -n consent -w --request-timeout=3s":                               "CLUSTER",
		"get configmaps -n consent -w -o json --request-timeout=3s":                       `"watershed.dev/cluster": "west"`,
		"get configmaps -n consent -w -o name --request-timeout=3s":                       "configmap/both-00",
		"get configmaps -n consent -w --output-watch-events --request-timeout=3s":         "CLUSTER",
		"get configmap east-01 -n consent -w --request-timeout=3s":                        "east-01",
		"wait configmap/east-01 -n consent --for=jsonpath={.data.is}=1 --timeout=4s":      "watch /clusters/<name>",
		"get configmaps -n consent --as bob":                                              "impersonation is forbidden",
		"get configmaps -n consent --as bob --as-group admins --as-uid 1":                 "impersonation is forbidden",
		"get configmaps -n consent -l watershed.dev/cluster=nowhere --request-timeout=9s": "no cluster matches",
	} {
		o := k.run(t.Context(), append(words("--context fleet"), words(line)...)...)
		if !strings.Contains(o.stdout+o.stderr, want) {
			t.Errorf("kubectl %s does not say %q: %d\n%.1000s\n%.1000s", line, want, o.code, o.stdout, o.stderr)
		}
	}
	// These are an informer's requests.
	bare := &subject{name: "fleet", root: p.fleet.root, token: p.fleet.token, client: p.fleet.client}
	for _, query := range []string{
		"?watch=1&timeoutSeconds=1",
		"?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
	} {
		a := bare.send(t.Context(), request{
			Method: http.MethodGet, URI: "/api/v1/configmaps" + query, Accept: "application/json",
		})
		if a.code != http.StatusBadRequest || !strings.Contains(string(a.body), "/clusters/") {
			t.Errorf("%s: %d %.200s", query, a.code, a.body)
		}
		if a := bare.send(t.Context(), request{
			Method: http.MethodGet,
			URI:    "/api/v1/configmaps" + query + "&watershedFleet=keyed-by-cluster",
			Accept: "application/json",
		}); a.code != http.StatusOK {
			t.Errorf("%s with the parameter: %d %.200s", query, a.code, a.body)
		}
	}
}

// testFleetUnmirrored: kubectl prints why there are no secrets, and why a cluster cannot
// be read, without waiting.
func testFleetUnmirrored(t *testing.T, p *pair) {
	dir := t.TempDir()
	kubeconfig, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig.Clusters["dead"] = &api.Cluster{Server: "https://127.0.0.1:1"}
	kubeconfig.Contexts["dead"] = &api.Context{Cluster: "dead"}
	text, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	process, err := startReplicaOf(t.Context(), nil, dir, path)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Stop()
	all, err := newSubject("replica", process.Config(), "")
	if err != nil {
		t.Fatal(err)
	}
	p.await(t, func(ctx context.Context) error {
		a := all.send(ctx, request{Method: http.MethodGet, URI: "/readyz?verbose"})
		if a.err != nil || a.code != http.StatusOK || !strings.Contains(string(a.body), "unreachable dead") {
			return fmt.Errorf("readyz: %d %w %s", a.code, a.err, a.body)
		}
		return nil
	})
	k := terminal{p.clusters[0].KubectlPath(), filepath.Join(dir, "replica"), t.TempDir()}
	if err := process.WriteKubeconfig(k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	run := func(line string) output {
		start := time.Now()
		o := k.run(t.Context(), words(line)...)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("kubectl %s takes %v", line, took)
		}
		return o
	}
	for _, name := range []string{"fleet", "east"} {
		for _, line := range []string{
			"get secrets", "get secrets -A -w", "get secret x -n default", "describe secrets",
		} {
			if o := run("--context " + name + " " + line); o.code == 0 ||
				!strings.Contains(o.stderr, "secrets is not mirrored by this replica") ||
				!strings.Contains(o.stderr, "--resources") {
				t.Errorf("kubectl %s of %s: %d %s%s", line, name, o.code, o.stdout, o.stderr)
			}
		}
		if o := run("--context " + name + " get all -A"); o.code != 0 || strings.Contains(o.stderr, "mirrored") ||
			!strings.Contains(o.stdout, "service/kubernetes") {
			t.Errorf("kubectl get all of %s: %d %s%s", name, o.code, o.stdout, o.stderr)
		}
		if o := run("--context " + name + " api-resources -o name"); o.code != 0 ||
			slices.Contains(strings.Fields(o.stdout), "secrets") || !slices.Contains(strings.Fields(o.stdout), "pods") {
			t.Errorf("kubectl api-resources of %s: %d %s%s", name, o.code, o.stdout, o.stderr)
		}
	}
	if o := run("--context dead get pods"); o.code == 0 || !strings.Contains(o.stderr, "connection refused") {
		t.Errorf("kubectl of a cluster that is not there: %d %s%s", o.code, o.stdout, o.stderr)
	}
}
