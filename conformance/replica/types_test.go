// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// typeScene is a step in the life of types, and the requests that show it.
type typeScene struct {
	name     string
	args     []string // of kubectl
	input    string
	requests []request
	// done returns nil when the server has noticed the step.
	done func(ctx context.Context, server *subject) error
}

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.late.example.com}
spec:
  group: late.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gg]}
  versions:
`

const gadgetsV1 = `
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {use: {type: string, description: What for.}}}}}}
`

const gadgetsColumns = gadgetsV1 + `
    additionalPrinterColumns: [{name: Use, type: string, jsonPath: .spec.use}]
    selectableFields: [{jsonPath: .spec.use}]
`

const gadgetsV2 = `
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const gadget = `
apiVersion: late.example.com/v1
kind: Gadget
metadata: {name: one, namespace: noisy}
spec: {use: none}
`

// absent is an API of a server that does not respond.
const absent = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.absent.example.com}
spec: {group: absent.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: absent, namespace: shop}}
`

// responds waits until the server's response contains a text, or does not.
func responds(r request, text string, want bool) func(context.Context, *subject) error {
	return func(ctx context.Context, server *subject) error {
		r.Method = http.MethodGet
		a := server.send(ctx, r)
		if got := strings.Contains(string(a.body), text); a.err != nil || got != want {
			return fmt.Errorf("%s says %q: %v %w", r, text, got, a.err)
		}
		return nil
	}
}

func typeScenes() []typeScene {
	groups := request{URI: "/apis", Accept: aggregatedAccept}
	rows := request{URI: "/apis/late.example.com/v1/gadgets", Accept: tableAccept}
	discovery := []request{
		{URI: "/apis", Accept: aggregatedAccept}, {URI: "/apis", Accept: jsonAccept},
		{URI: "/apis/late.example.com", Accept: jsonAccept},
	}
	of := func(version string) []request {
		return append([]request{
			{URI: "/apis/late.example.com/" + version, Accept: jsonAccept},
			{URI: "/apis/late.example.com/" + version + "/gadgets", Accept: tableAccept},
			{URI: "/apis/late.example.com/" + version + "/gadgets", Accept: jsonAccept},
			{URI: "/apis/late.example.com/" + version + "/gadgets?fieldSelector=spec.use%3Dnone", Accept: jsonAccept},
			{URI: "/apis/late.example.com/" + version + "/namespaces/noisy/gadgets/one", Accept: jsonAccept},
			{URI: "/openapi/v3/apis/late.example.com/" + version, Accept: jsonAccept},
			{URI: "/openapi/v3", Accept: jsonAccept},
		}, discovery...)
	}
	return []typeScene{
		{"a type that is not there", nil, "", of("v1"), nil},
		{
			"a type is defined", []string{"apply", "-f", "-"}, gadgets + gadgetsV1, of("v1"),
			responds(groups, "gadgets", true),
		},
		{"its first object", []string{"apply", "-f", "-"}, gadget, of("v1"), responds(rows, `"one"`, true)},
		{
			"it gets columns", []string{"apply", "-f", "-"}, gadgets + gadgetsColumns, of("v1"),
			responds(rows, `"Use"`, true),
		},
		{
			"it gets a better version", []string{"apply", "-f", "-"}, gadgets + gadgetsColumns + gadgetsV2, of("v2"),
			responds(request{URI: "/apis/late.example.com", Accept: jsonAccept}, "late.example.com/v2", true),
		},
		{
			"it is gone", []string{"delete", "crd", "gadgets.late.example.com"}, "", of("v1"),
			responds(groups, "gadgets", false),
		},
		{"a server does not answer", []string{"apply", "-f", "-"}, absent, append(discovery,
			request{URI: "/apis/absent.example.com", Accept: jsonAccept}, request{
				URI: "/apis/absent.example.com/v1", Accept: jsonAccept,
			}, request{
				URI: "/apis/absent.example.com/v1/things", Accept: jsonAccept,
			}), responds(groups, "Stale", true)},
		{
			"it is given up", []string{"delete", "apiservice", "v1.absent.example.com"}, "", discovery,
			responds(groups, "Stale", false),
		},
	}
}

// typesWithin is how long a replica may take to follow.
const typesWithin = 20 * time.Second

// TestTypes follows types that are added, changed and removed: some time later the
// replica responds like the server.
func TestTypes(t *testing.T) {
	w := theComparedCluster(t)
	for _, scene := range typeScenes() {
		t.Run(scene.name, func(t *testing.T) {
			if scene.args != nil {
				if _, err := w.cluster.KubectlInput(t.Context(), scene.input, scene.args...); err != nil {
					t.Fatal(err)
				}
			}
			if scene.done != nil {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := expect.Until(ctx, func() error { return scene.done(ctx, w.server) }); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), typesWithin)
			defer cancel()
			for _, r := range scene.requests {
				r.Category, r.Method = "types", http.MethodGet
				for {
					// The set of mirrored resources has changed.
					c, err := newCatalogue(t.Context(), w.server)
					if err != nil {
						t.Fatal(err)
					}
					now := *w
					now.catalogue = c
					res := now.compareOne(t.Context(), r)
					if len(res.found) == 0 || intended(&now, &res, w.columns()[0].differences) != nil {
						break
					}
					if ctx.Err() != nil {
						t.Errorf("%s\n\t%s", r, findings(res.found))
						break
					}
					time.Sleep(200 * time.Millisecond)
				}
			}
			if !t.Failed() {
				t.Logf("equal after %.1fs", time.Since(start).Seconds())
			}
		})
	}
}
