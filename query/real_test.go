// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/query"
)

// types has a custom type.
const types = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ferries.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Ferry, plural: ferries}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// manifest has objects that are received as protobuf and as JSON. HTML is written
// differently by different encoders.
const manifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web, args: ["<a> & b"]}]}}
---
apiVersion: example.com/v1
kind: Ferry
metadata: {name: hamburg, labels: {app: web}}
spec: {route: "<a> & b", size: 1.5}
`

var ferries = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "ferries"}

// TestHandler_realCluster compares responses with those of the API server.
func TestHandler_realCluster(t *testing.T) {
	c := kubetest.Start(t, nil)
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := c.KubectlInput(t.Context(), input, args...)
		expect.NoError(t, err)
		return out
	}
	kubectl(types, "apply", "-f", "-")
	kubectl("", "wait", "crd/ferries.example.com", "--for=condition=Established", "--timeout=60s")
	kubectl(manifest, "apply", "-f", "-")
	expect.NoError(t, c.LoadPods(t.Context(), kubetest.Workload{Seed: 1, Namespaces: 3}, 60))

	r := query.Resources{
		podResource:        {"app": byLabel(nameLabel), "node": nodeOf},
		deploymentResource: nil,
		ferries:            {"app": byLabel("app")},
	}
	for name, subject := range map[string]struct {
		handler        http.Handler
		prefix, suffix string // of keys, and of requests for one object
	}{
		"factory": {ofFactory(t, c.Config(), r, nil), "", ""},
		"fleet":   {ofFleet(t, map[string]*rest.Config{"one": c.Config()}, r, nil), "one/", "?cluster=one"},
	} {
		t.Run(name, func(t *testing.T) {
			same := func(resource, key, path string) {
				t.Helper()
				want := strings.TrimSpace(kubectl("", "get", "--raw", path))
				// The copy may lag behind the writes of the other subject's test.
				expect.Eventually(t, time.Minute, func() error {
					w := send(subject.handler, http.MethodGet, "/"+resource+"/"+key+subject.suffix)
					if got := strings.TrimSpace(w.Body.String()); got != want {
						return fmt.Errorf("%s, want %s", got, want)
					}
					return nil
				})
			}
			same("deployments.apps", "default/web", "/apis/apps/v1/namespaces/default/deployments/web")
			same("ferries.example.com", "default/hamburg", "/apis/example.com/v1/namespaces/default/ferries/hamburg")

			selected := get(t, subject.handler, "/pods?namespace=team-001&labelSelector="+componentLabel+"%3Dworker")
			names := strings.Fields(
				kubectl("", "get", "pods", "-n", "team-001", "-l", componentLabel+"=worker", "-o", "name"),
			)
			var want []string
			for _, pod := range names {
				want = append(want, subject.prefix+"team-001/"+strings.TrimPrefix(pod, "pod/"))
			}
			slices.Sort(want)
			expect.Equal(t, selected.Keys, want)
			if len(want) == 0 {
				t.Fatal("no pods are selected: the test asks for the wrong ones")
			}
			for i, key := range want {
				name := key[strings.LastIndexByte(key, '/')+1:]
				expect.Equal(t, string(selected.Items[i]),
					strings.TrimSpace(kubectl("", "get", "--raw", "/api/v1/namespaces/team-001/pods/"+name)))
			}

			// The index follows the cluster.
			for _, app := range []string{"moved-by-" + name, "back"} {
				kubectl("", "label", "ferries.example.com", "hamburg", "--overwrite", "app="+app)
				expect.Eventually(t, time.Minute, func() error {
					keys := get(t, subject.handler, "/ferries.example.com?index=app&keys=true&value="+app).Keys
					if len(keys) != 1 || keys[0] != subject.prefix+"default/hamburg" {
						return fmt.Errorf("app=%s: %v", app, keys)
					}
					return nil
				})
			}
			expect.Equal(t, get(t, subject.handler, "/ferries.example.com?index=app&value=moved-by-"+name).Keys,
				[]string{})
		})
	}
}
