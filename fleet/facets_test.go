// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// facetOf returns a facet of an object of the cluster "one", and false if it is unknown.
func facetOf(f *fleet.Fleet, at schema.GroupResource, key, path string) (value any, known bool) {
	o, ok := fleet.OfResource[*wire.Object](f, at).Get(fleet.Key{Cluster: "one", Object: key})
	if !ok {
		return nil, false
	}
	return facets.Of(o).Value(path)
}

// hasFacet waits until an object has a facet.
func hasFacet(t *testing.T, f *fleet.Fleet, at schema.GroupResource, key, path string, want any) {
	t.Helper()
	expect.Eventually(t, time.Minute, func() error {
		if got, known := facetOf(f, at, key, path); !known || !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s of %s is %#v, %t, want %#v", path, key, got, known, want)
		}
		return nil
	})
}

// memoryOf returns the memory of a resource of the cluster "one".
func memoryOf(f *fleet.Fleet, at schema.GroupResource) (s watershed.Stats) {
	for _, m := range f.Stats().Members {
		for _, r := range m.Resources {
			if r.Resource == at {
				s = r.Memory
			}
		}
	}
	return s
}

// TestFacets follows the facets of a real cluster: from lists and watches, with the columns of a
// custom resource, without managed fields, from files, and after objects have gone.
func TestFacets(t *testing.T) {
	c := kubetest.Start(t, nil)
	apply(t, c, strings.Replace(crd("widgets", "Cluster", "v1", "v1alpha1"), "    schema:",
		`    additionalPrinterColumns: [{name: Color, type: string, jsonPath: .spec.color}]
    selectableFields: []
    schema:`, 1))
	widgets, deployments := custom("widgets"), schema.GroupResource{Group: "apps", Resource: "deployments"}
	expect.Eventually(t, time.Minute, func() error {
		_, err := c.KubectlInput(t.Context(), `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {color: red}
`, "create", "-f", "-")
		if err != nil && strings.Contains(err.Error(), "AlreadyExists") {
			return nil
		}
		return err
	})
	deployment := func(name, image string) {
		apply(t, c, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: main, image: %q}]}
`, name, image))
	}
	deployment("shop", "shop:1")
	image, manager := "spec.template.spec.containers[*].image", "metadata.managedFields[*].manager"
	path := t.TempDir()
	run := func(name string, during func(t *testing.T, f *fleet.Fleet)) {
		t.Run(name, func(t *testing.T) {
			r := newRoster()
			r.set("one", c.Config())
			f := start(t, r, &fleet.Options{
				Logger: quiet, Disk: storing(t, path), Drop: wire.ManagedFields,
				Facets: []string{"default", "deployments.apps:.metadata.labels['app']"},
				Resources: []string{"deployments.apps", "widgets.example.com",
					"customresourcedefinitions.apiextensions.k8s.io"},
			})
			expect.NoError(t, f.WaitForSync(t.Context()))
			during(t, f)
		})
	}
	run("listed", func(t *testing.T, f *fleet.Fleet) {
		hasFacet(t, f, deployments, "default/shop", image, []any{"shop:1"})
		hasFacet(t, f, deployments, "default/shop", manager, []any{"kubectl"})
		hasFacet(t, f, deployments, "default/shop", "spec.replicas", int64(3))
		hasFacet(t, f, deployments, "default/shop", "metadata.labels.app", nil)
		hasFacet(t, f, widgets, "w", "spec.color", "red")
		one := memoryOf(f, deployments)
		if one.FacetBytes == 0 || one.UnknownFacets != 0 || f.Stats().FacetValues == 0 {
			t.Errorf("facets take %d bytes, %d are unknown, %d values", one.FacetBytes, one.UnknownFacets,
				f.Stats().FacetValues)
		}
		deployment("shop", "shop:2")
		deployment("other", "shop:1")
		hasFacet(t, f, deployments, "default/shop", image, []any{"shop:2"})
		hasFacet(t, f, deployments, "default/other", image, []any{"shop:1"})
		if now := memoryOf(f, deployments); now.FacetBytes <= one.FacetBytes {
			t.Errorf("two objects have %d bytes of facets, one %d", now.FacetBytes, one.FacetBytes)
		}
		for _, s := range fleet.OfResource[*wire.Object](f, deployments).Snapshot().States() {
			var found []string
			for o, answer := range facets.Lookup(s, "metadata.name", "shop") {
				found = append(found, fmt.Sprint(o.Key(), answer))
			}
			if fmt.Sprint(found) != fmt.Sprint([]string{fmt.Sprint("default/shop", facets.Yes)}) {
				t.Errorf("found %v", found)
			}
		}
		_, err := c.Kubectl(t.Context(), "delete", "deployment", "other")
		expect.NoError(t, err)
		expect.Soon(t, "the end of its facets", func() bool {
			return memoryOf(f, deployments).FacetBytes == one.FacetBytes
		})
	})
	run("loaded", func(t *testing.T, f *fleet.Fleet) {
		hasFacet(t, f, deployments, "default/shop", image, []any{"shop:2"})
		hasFacet(t, f, widgets, "w", "spec.color", "red")
		if got, known := facetOf(f, deployments, "default/shop", manager); known {
			t.Errorf("the managers, which are not in the files, are %v", got)
		}
		if n := memoryOf(f, deployments).UnknownFacets; n != 1 {
			t.Errorf("%d objects have unknown facets, want 1", n)
		}
		deployment("shop", "shop:3")
		hasFacet(t, f, deployments, "default/shop", image, []any{"shop:3"})
		hasFacet(t, f, deployments, "default/shop", manager, []any{"kubectl"})
		if n := memoryOf(f, deployments).UnknownFacets; n != 0 {
			t.Errorf("%d objects have unknown facets after the change, want none", n)
		}
	})
}

// TestFacets_listedAgain fails if a facet that was unknown stays so when the object is listed again
// unchanged.
func TestFacets_listedAgain(t *testing.T) {
	const pods = 30
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: pods})
	c, path := s.Cluster(0), t.TempDir()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again ", again), func(t *testing.T) {
			r := newRoster()
			r.set(c.Name(), c.Config())
			f := start(t, r, &fleet.Options{
				Logger: quiet, Disk: storing(t, path), Drop: wire.ManagedFields, Facets: []string{"default"},
				Resources: []string{"pods"},
			})
			expect.NoError(t, f.WaitForSync(t.Context()))
			if want := map[bool]int{false: 0, true: pods}[again]; memoryOf(f, podResource).UnknownFacets != want {
				t.Fatalf("%d pods have unknown facets, want %d", memoryOf(f, podResource).UnknownFacets, want)
			}
			if again {
				c.Compact()
				c.Cut()
				expect.Soon(t, "known facets", func() bool { return memoryOf(f, podResource).UnknownFacets == 0 })
			}
		})
	}
}

// TestFacets_none shows that objects of a fleet that does not ask for facets have none.
func TestFacets_none(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 10})
	r := newRoster()
	r.set(s.Cluster(0).Name(), s.Cluster(0).Config())
	f := start(t, r, &fleet.Options{Logger: quiet, Facets: []string{"none"}})
	expect.NoError(t, f.WaitForSync(t.Context()))
	for _, o := range fleet.OfResource[*wire.Object](f, podResource).All() {
		if facets.Of(o) != nil {
			t.Fatalf("%s has a record", o.Key())
		}
	}
	if m := memoryOf(f, podResource); m.FacetBytes != 0 || m.UnknownFacets != 0 {
		t.Errorf("memory %+v", m)
	}
	if _, err := fleet.New(r, &fleet.Options{Facets: []string{"secrets:.data.password"}}); err == nil {
		t.Error("a facet of the content of secrets is accepted")
	}
}
