// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// The documents of a real API server have the schemas of its kinds, and the fields that users ask about.
func TestReal_documents(t *testing.T) {
	k := kubetest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := k.CreateManifest(ctx, geese); err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(k.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	document := func(path string) *Document {
		for {
			text, found := download(ctx, t, client, k.Config().Host+"/openapi/v3/"+path)
			d, err := ParseDocument(text)
			if found && err != nil {
				t.Fatal(err)
			}
			// The document of a new type appears some time after the type.
			if found && (path != geeseVersion || d.Schema(goose) != nil) {
				return d
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%s does not appear", path)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	askRealSchemas(t, document)
}

const geeseVersion = "apis/example.com/v1"

var goose = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Goose"}

const geese = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: geese.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: geese, singular: goose, kind: Goose}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              port: {x-kubernetes-int-or-string: true}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              eggs: {type: array, items: {type: object, properties: {weight: {type: number}}}}
              marks: {type: object, additionalProperties: {type: array, items: {type: string}}}
`

func askRealSchemas(t *testing.T, document func(path string) *Document) {
	t.Helper()
	core, apps := document("api/v1"), document("apis/apps/v1")
	extensions := document("apis/apiextensions.k8s.io/v1")
	kinds := map[string]*Schema{
		"Goose":      document(geeseVersion).Schema(goose),
		"Pod":        core.Schema(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}),
		"Service":    core.Schema(schema.GroupVersionKind{Version: "v1", Kind: "Service"}),
		"Deployment": apps.Schema(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}),
		"CustomResourceDefinition": extensions.Schema(schema.GroupVersionKind{
			Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		}),
	}
	for _, c := range []struct{ kind, text, want string }{
		{"Pod", `object.spec.containers.exists(c, c.image.endsWith(":1.2.3"))`, ""},
		{"Pod", `object.spec.containers.exists(c, !has(c.resources.limits))`, ""},
		{"Pod", `object.spec.containers.exists(c, quantity(c.resources.limits["cpu"]).isGreaterThan(quantity("1")))`, ""},
		{"Pod", `object.status.containerStatuses.map(c, c.restartCount).sum() > 5`, ""},
		{"Pod", `timestamp(object.metadata.creationTimestamp) < now - duration("24h")`, ""},
		{"Pod", `object.metadata.ownerReferences.exists(o, o.kind == "ReplicaSet" && o.controller)`, ""},
		{"Pod", `object.metadata.managedFields.exists(m, m.apiVersion == "v1" && has(m.fieldsV1.anything))`, ""},
		{"Pod", `object.metadata.labels["app"] == "x" && object.metadata.namespace == "y"`, ""},
		{"Pod", `object.spec.nodName == "a"`, `object.spec has no field "nodName", did you mean "nodeName"?`},
		{"Pod", `object.spec.containers.exists(c, c.imagePullPolcy == "a")`,
			`object.spec.containers[*] has no field "imagePullPolcy", did you mean "imagePullPolicy"?`},
		{"Pod", `object.spec.priority == "a"`, `the operator == cannot be used with (int, string)`},
		{"Service", `object.spec.ports.exists(p, p.targetPort == 80 || p.targetPort == "http")`, ""},
		{"Service", `object.spec.clusterIPs.exists(i, cidr("10.0.0.0/8").containsIP(i))`, ""},
		{"Deployment", `object.spec.template.spec.containers.all(c, has(c.resources.requests.memory))`, ""},
		{"Deployment", `object.spec.strategy.rollingUpdate.maxSurge == "25%"`, ""},
		{"Deployment", `object.status.readyReplicas < object.spec.replicas`, ""},
		{"Goose", `object.spec.size > 3 && object.spec.port == "http" && object.spec.free.any.thing == 1`, ""},
		{"Goose", `object.spec.pod.metadata.labels["a"] == "b" && object.spec.pod.spec.nodeName == "c"`, ""},
		{"Goose", `object.spec.eggs.exists(e, e.weight > 1.5) && object.spec.marks.exists(k, v, "a" in v)`, ""},
		{"Goose", `object.metadata.creationTimestamp != "" && object.kind == "Goose"`, ""},
		{"Goose", `object.spec.eggs.exists(e, e.wieght > 1.5)`,
			`object.spec.eggs[*] has no field "wieght", did you mean "weight"?`},
		{"CustomResourceDefinition", `object.spec.versions.exists(v, ` +
			`v.schema.openAPIV3Schema.properties["spec"].properties["a"].items.anything == 1)`, ""},
	} {
		checked, err := compiled(t, c.text, true).Check([]*Schema{kinds[c.kind]})
		switch {
		case c.want == "" && (err != nil || checked.Lacking() > 0):
			t.Errorf("%s: %s: %v", c.kind, c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %s: %v, want %s", c.kind, c.text, err, c.want)
		}
	}
}

// download returns a document, and false if the server does not have it.
func download(ctx context.Context, tb testing.TB, client *http.Client, url string) ([]byte, bool) {
	tb.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		tb.Fatalf("%s: %s %v", url, response.Status, err)
	}
	return text, response.StatusCode == http.StatusOK
}
