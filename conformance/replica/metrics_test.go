// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// serveMetrics serves metrics.k8s.io/v1beta1 with fixed figures, and has the API server of a
// cluster aggregate it. It returns when the API server does.
func serveMetrics(ctx context.Context, t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(answerMetrics))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	objects := fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: metrics, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics, namespace: kube-system, port: %s}
`, port)
	if _, err := c.KubectlInput(ctx, objects, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, patience, func() error {
		_, err := c.Kubectl(ctx, "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
		return err
	})
}

// answerMetrics answers a request for metrics.
func answerMetrics(w http.ResponseWriter, r *http.Request) {
	const root = "/apis/metrics.k8s.io/v1beta1"
	usage := map[string]any{"cpu": "250m", "memory": "512Mi"}
	item := func(namespace, name string) map[string]any {
		meta := map[string]any{"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
		one := map[string]any{"metadata": meta, "timestamp": "2026-01-01T00:00:00Z", "window": "10s"}
		if namespace == "" {
			one["usage"] = usage
			return one
		}
		meta["namespace"] = namespace
		one["containers"] = []any{
			map[string]any{"name": "main", "usage": usage},
			map[string]any{"name": "side", "usage": usage},
		}
		return one
	}
	list := func(kind string, items ...any) map[string]any {
		if r.URL.Query().Get("labelSelector") != "" {
			items = nil
		}
		return map[string]any{
			"kind":       kind,
			"apiVersion": "metrics.k8s.io/v1beta1",
			"metadata":   map[string]any{},
			"items":      append([]any{}, items...),
		}
	}
	var answer map[string]any
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, root+"/"), "/")
	switch {
	case r.URL.Path == root:
		resource := func(name, kind string, namespaced bool) map[string]any {
			return map[string]any{
				"name":         name,
				"kind":         kind,
				"singularName": "",
				"namespaced":   namespaced,
				"verbs":        []string{"get", "list"},
			}
		}
		answer = map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
			"resources": []any{resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)},
		}
	case r.URL.Path == root+"/nodes":
		answer = list("NodeMetricsList", item("", "node-0"))
	case r.URL.Path == root+"/nodes/node-0":
		answer = item("", "node-0")
		answer["kind"], answer["apiVersion"] = "NodeMetrics", "metrics.k8s.io/v1beta1"
	case len(parts) == 3 && parts[0] == "namespaces" && parts[2] == "pods":
		answer = list("PodMetricsList", item(parts[1], "one"), item(parts[1], "two"))
	case len(parts) == 4 && parts[0] == "namespaces" && parts[3] == "one":
		answer = item(parts[1], "one")
		answer["kind"], answer["apiVersion"] = "PodMetrics", "metrics.k8s.io/v1beta1"
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]any{
			"kind":       "Status",
			"apiVersion": "v1",
			"status":     "Failure",
			"reason":     "NotFound",
			"code":       http.StatusNotFound,
			"message":    "not found",
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
}
