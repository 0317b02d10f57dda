// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

const gauges = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.below.example.com}
spec:
  group: below.example.com
  scope: Namespaced
  names: {plural: gauges, singular: gauge, kind: Gauge}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {%s}
`

// These objects have all fields of a scale, none, and some with invalid values.
const gaugeObjects = `
apiVersion: below.example.com/v1
kind: Gauge
metadata: {name: full, namespace: noisy, labels: {a: b}}
spec: {size: 3, other: 5}
status: {size: 2, of: app=web}
---
apiVersion: below.example.com/v1
kind: Gauge
metadata: {name: bare, namespace: noisy}
---
apiVersion: below.example.com/v1
kind: Gauge
metadata: {name: wrong, namespace: noisy}
spec: {size: large, other: 5}
status: {of: [1]}
`

// TestSubresources_change follows a type whose subresources are added, changed and
// removed.
func TestSubresources_change(t *testing.T) {
	w := theComparedCluster(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := w.cluster.Kubectl(ctx, "delete", "crd", "gauges.below.example.com"); err != nil {
			t.Error(err)
		}
	})
	var requests []request
	for _, name := range []string{"full", "bare", "wrong"} {
		for _, below := range []string{"status", "scale"} {
			for _, accept := range []string{jsonAccept, tableAccept} {
				requests = append(requests, request{
					URI: "/apis/below.example.com/v1/namespaces/noisy/gauges/" + name + "/" + below, Accept: accept,
				})
			}
		}
	}
	requests = append(requests, request{
		URI: "/apis/below.example.com/v1", Accept: jsonAccept,
	}, request{URI: "/apis", Accept: aggregatedAccept})
	for i, below := range []string{
		"", "status: {}", "status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}",
		"scale: {specReplicasPath: .spec.other, statusReplicasPath: .status.size, labelSelectorPath: .status.of}",
		"status: {}",
	} {
		if _, err := w.cluster.KubectlInput(t.Context(), fmt.Sprintf(gauges, below), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := w.cluster.Kubectl(t.Context(), "wait", "crd", "gauges.below.example.com",
				"--for=condition=Established", "--timeout=60s"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.cluster.KubectlInput(t.Context(), gaugeObjects, "apply", "-f", "-"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), typesWithin)
		for _, r := range requests {
			r.Category, r.Method = "types", http.MethodGet
			if err := expect.Until(ctx, func() error { return w.differs(ctx, r) }); err != nil {
				t.Errorf("with {%s}: %s\n\t%v", below, r, err)
			}
		}
		cancel()
		time.Sleep(time.Second) // the server's discovery lags behind its responses
	}
}

// differs returns the difference between the responses to a request, with the currently
// mirrored resources.
func (w *comparedCluster) differs(ctx context.Context, r request) error {
	c, err := newCatalogue(ctx, w.server)
	if err != nil {
		return err
	}
	now := *w
	now.catalogue = c
	res := now.compareOne(ctx, r)
	if len(res.found) == 0 || intended(&now, &res, w.columns()[0].differences) != nil {
		return nil
	}
	return fmt.Errorf("%s", findings(res.found))
}
