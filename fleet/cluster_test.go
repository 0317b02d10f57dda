// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// crd returns the manifest of a custom resource with two versions, of which some are
// served and the first of those is stored. It always defines both: a server cannot read
// objects that it has stored in a version that is not defined any more.
func crd(plural, scope string, served ...string) string {
	var b strings.Builder
	kind := strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
	fmt.Fprintf(&b, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.example.com}
spec:
  group: example.com
  scope: %s
  names: {plural: %s, singular: %s, kind: %s, listKind: %sList}
  versions:
`, plural, scope, plural, strings.TrimSuffix(plural, "s"), kind, kind)
	for _, v := range []string{"v1", "v1alpha1"} {
		fmt.Fprintf(&b, `  - name: %s
    served: %t
    storage: %t
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, v, slices.Contains(served, v), v == served[0])
	}
	return b.String()
}

func custom(plural string) schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: plural}
}

// apply runs kubectl apply.
func apply(t *testing.T, c *kubetest.Cluster, manifest string) {
	t.Helper()
	if _, err := c.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--force-conflicts", "-f",
		"-"); err != nil {
		t.Fatal(err)
	}
}

func TestMember_mirrorsWhatIsServed(t *testing.T) {
	c := kubetest.Start(t, nil)
	r := newRoster()
	r.set("one", c.Config())
	f := start(t, r, nil)
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := f.Member("one")
	if s := m.Status(); s.State != fleet.Live || s.Err != nil || s.Synced != s.Resources || len(s.Failing) > 0 {
		t.Fatalf("status %+v", s)
	}
	served, err := m.Cluster().Resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, s := range served {
		name := s.GroupResource().String()
		left := slices.Contains([]string{
			"secrets", "events", "events.events.k8s.io", "leases.coordination.k8s.io",
			"leasecandidates.coordination.k8s.io",
		}, name)
		if slices.Contains(s.Verbs, "watch") && slices.Contains(s.Verbs, "list") && !left &&
			!slices.Contains(want, name) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	var got []string
	for _, r := range f.Resources() {
		got = append(got, r.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("mirrored:\n%v\nto be mirrored:\n%v", got, want)
	}
	for _, gr := range f.Resources() {
		if gr == (schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}) {
			continue // only the API server can read it
		}
		expect.Eventually(t, 10*time.Second, func() error { return unlike(t.Context(), f, "one", c, gr) })
	}
}

func TestMember_followsCustomResources(t *testing.T) {
	c := kubetest.Start(t, nil)
	r := newRoster()
	r.set("one", c.Config())
	f := start(t, r, nil)
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	gadgets := fleet.OfResource[*unstructured.Unstructured](f, custom("gadgets"))
	w := watchView(t, "gadgets", fleet.OfResource[*wire.Object](f, custom("gadgets")))

	apply(t, c, crd("gadgets", "Namespaced", "v1alpha1"))
	m, _ := f.Member("one")
	var established, synced time.Time
	expect.Eventually(t, 10*time.Second, func() error {
		if established.IsZero() && isEstablished(t, m.Cluster(), "gadgets.example.com") {
			established = time.Now()
		}
		for _, r := range m.Resources() {
			if r.Resource.Resource == "gadgets" && r.Synced && synced.IsZero() {
				synced = time.Now()
			}
		}
		if established.IsZero() || synced.IsZero() {
			return errors.New("the type is not mirrored")
		}
		return nil
	})
	took := synced.Sub(established)
	t.Logf("a new type has synced %v after it was established", took.Round(time.Millisecond))
	if took > 15*time.Second {
		t.Errorf("a new type has synced %v after it was established", took)
	}
	expect.Eventually(t, 10*time.Second, func() error {
		if _, err := c.KubectlInput(t.Context(),
			"{apiVersion: example.com/v1alpha1, kind: Gadget, metadata: {name: a, namespace: default}, spec: {size: "+
				"1}}", "apply", "-f", "-"); err != nil {
			return err
		}
		return nil
	})
	expect.Eventually(t, time.Second, func() error {
		if g, ok := gadgets.Get(fleet.Key{Cluster: "one", Object: "default/a"}); !ok {
			return errors.New("the object is not there")
		} else if g.GetAPIVersion() != "example.com/v1alpha1" {
			return errors.New("it is " + g.GetAPIVersion())
		}
		return nil
	})

	// Another version: the object is available in it, and readers never see it absent.
	apply(t, c, crd("gadgets", "Namespaced", "v1", "v1alpha1"))
	expect.Eventually(t, 15*time.Second, func() error {
		if g, ok := gadgets.Get(fleet.Key{Cluster: "one", Object: "default/a"}); !ok {
			t.Fatal("the object is gone")
			return nil
		} else if g.GetAPIVersion() != "example.com/v1" {
			return errors.New("it is " + g.GetAPIVersion())
		}
		return nil
	})
	// The watch loop may be a moment behind the state.
	expect.Eventually(t, 5*time.Second, func() error {
		if n := w.count(); n != 2 {
			return fmt.Errorf("%d changes for an object that was made and got another version", n)
		}
		return nil
	})
	expect.Eventually(t, 5*time.Second, func() error {
		for _, r := range m.Resources() {
			if r.Resource.Resource == "gadgets" && r.Resource.Version != "v1" {
				return errors.New("still mirrored in " + r.Resource.Version)
			}
		}
		return nil
	})

	// Removed: the memory is freed, and the resource is not requested any more.
	if _, err := c.Kubectl(t.Context(), "delete", "crd", "gadgets.example.com"); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, 10*time.Second, func() error {
		for _, r := range m.Resources() {
			if r.Resource.Resource == "gadgets" {
				return errors.New("still mirrored")
			}
		}
		if n := gadgets.Len(); n > 0 {
			return fmt.Errorf("%d objects", n)
		}
		return w.behind(fleet.OfResource[*wire.Object](f, custom("gadgets")))
	})

	// Defined again with another scope.
	apply(t, c, crd("gadgets", "Cluster", "v1"))
	expect.Eventually(t, 20*time.Second, func() error {
		if _, err := c.KubectlInput(t.Context(), "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: b}}",
			"apply", "-f", "-"); err != nil {
			return err
		}
		return nil
	})
	expect.Eventually(t, 10*time.Second, func() error { return unlike(t.Context(), f, "one", c, custom("gadgets")) })
	if _, ok := gadgets.Get(fleet.Key{Cluster: "one", Object: "b"}); !ok {
		t.Error("the object of the other scope is not there")
	}
	if s := m.Status(); s.State != fleet.Live {
		t.Errorf("in the end: %+v", s)
	}
}

// isEstablished reports whether the server serves a custom type.
func isEstablished(t *testing.T, c *kube.Cluster, name string) bool {
	t.Helper()
	o, err := c.Get(t.Context(), kube.Query{Resource: schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}}, name)
	if err != nil {
		return false // it does not exist yet
	}
	u, err := wire.Decode[*unstructured.Unstructured](o)
	if err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}

func TestFleet_rotatesCredentials(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{
		Users: []kubetest.User{{Name: "second", Groups: []string{"system:masters"}}},
	})
	r := newRoster()
	r.set("one", c.Config())
	f := start(t, r, &fleet.Options{Resources: []string{"configmaps", "pods"}})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := f.Member("one")
	lists := func() (n uint64) {
		for _, r := range m.Resources() {
			n += r.Reflector.Lists
		}
		return n
	}
	before := lists()
	first := m.Cluster()
	r.set("one", c.UserConfig("second"))
	expect.Eventually(t, 10*time.Second, func() error {
		if m.Cluster() == first {
			return errors.New("still the first credentials")
		}
		for _, r := range m.Resources() {
			if r.Reflector.Watches < 2 {
				return errors.New(r.Resource.Resource + " is watched as before")
			}
		}
		return nil
	})
	if now, _ := f.Member("one"); now != m {
		t.Error("it is another member")
	}
	if after := lists(); after != before {
		t.Errorf("%d lists for another token", after-before)
	}
	create(t, c, "after")
	expect.Eventually(t, 10*time.Second, func() error {
		return unlike(t.Context(), f, "one", c, schema.GroupResource{Resource: "configmaps"})
	})
}

// TestMember_readsWhatItMay has credentials that allow reading two resources.
func TestMember_readsWhatItMay(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{Users: []kubetest.User{{Name: "limited"}}})
	if err := c.Grant(t.Context(), "limited", "", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods", "configmaps"}, Verbs: []string{"get", "list", "watch"},
	}); err != nil {
		t.Fatal(err)
	}
	r := newRoster()
	r.set("one", c.UserConfig("limited"))
	f := start(t, r, &fleet.Options{Logger: quiet})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	create(t, c, "readable")
	expect.Eventually(t, 5*time.Second, func() error {
		return unlike(t.Context(), f, "one", c, schema.GroupResource{Resource: "configmaps"})
	})
	m, _ := f.Member("one")
	s := m.Status()
	if s.State != fleet.Stale || s.Synced != 2 || len(s.Failing) != s.Resources-2 || !apierrors.IsForbidden(s.Err) {
		t.Errorf("status %s: %d of %d, %d failing, %v", s.State, s.Synced, s.Resources, len(s.Failing), s.Err)
	}

	// Once the credentials allow reading everything, everything is read.
	if err := c.Grant(t.Context(), "limited", "", rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
	}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, time.Minute, func() error {
		if s := m.Status(); s.State != fleet.Live {
			return fmt.Errorf("%s: %d of %d, %w", s.State, s.Synced, s.Resources, s.Err)
		}
		return nil
	})
}

func create(t *testing.T, c *kubetest.Cluster, name string) {
	t.Helper()
	if _, err := c.Kubectl(t.Context(), "create", "configmap", name); err != nil {
		t.Fatal(err)
	}
}

func TestOf_typed(t *testing.T) {
	f, err := fleet.New(newRoster(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := fleet.Of[*corev1.Pod](f)
	if err != nil {
		t.Fatal(err)
	}
	if n := pods.Len(); n != 0 {
		t.Errorf("%d pods before anything runs", n)
	}
}
