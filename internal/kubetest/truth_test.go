// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const widget = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: one, namespace: default}
spec: {size: 3}
`

// testTruth compares the content of etcd with the API server's responses, for resources
// that are stored in different ways.
func testTruth(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.CreateManifest(ctx, widgets); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "crd/widgets.example.com",
		"--timeout=30s"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateManifest(ctx, widget); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, "create", "ingress", "web", "--rule=example.com/=web:80"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, "create", "deployment", "web", "--image=web"); err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, gvr := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "namespaces"},
		{Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "configmaps"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "example.com", Version: "v1", Resource: "widgets"},
	} {
		list, err := dyn.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Errorf("%s: %v", gvr.Resource, err)
			continue
		}
		truth, err := c.Truth(ctx, gvr.GroupResource())
		if err != nil {
			t.Error(err)
			continue
		}
		if truth.Revision == 0 {
			t.Errorf("%s: the truth has no revision", gvr.Resource)
		}
		want, got := map[string]bool{}, map[string]bool{}
		for _, o := range list.Items {
			want[identity(&o)] = true
		}
		for _, s := range truth.Objects {
			got[identity(s.Meta)] = true
		}
		if len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("%s:\netcd has\n%s\nthe API server says\n%s", gvr.Resource, lines(got), lines(want))
		}
	}
	truth, err := c.Truth(ctx, schema.GroupResource{Group: "example.com", Resource: "widgets"})
	if err != nil {
		t.Fatal(err)
	}
	u, ok := truth.Objects[0].Object.(*unstructured.Unstructured)
	if !ok {
		t.Fatalf("a custom resource is a %T", truth.Objects[0].Object)
	}
	if size, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "size"); size != int64(3) {
		t.Errorf("the widget's size is %#v, want 3", size)
	}
	if err := c.Put(ctx, "", nil); err == nil || !strings.Contains(err.Error(), "key is not provided") {
		t.Errorf("writing without a key: %v", err)
	}
	truth, err = c.Truth(ctx, schema.GroupResource{Resource: "namespaces"})
	if err != nil {
		t.Fatal(err)
	}
	if ns, ok := truth.Objects[0].Object.(*corev1.Namespace); !ok || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("a namespace is %#v", truth.Objects[0].Object)
	}
}

func identity(o metav1.Object) string {
	return strings.Join([]string{o.GetNamespace(), o.GetName(), string(o.GetUID()), o.GetResourceVersion()}, " ")
}

func lines(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), "\n")
}
