// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

func paths(spec, current, selector string) view.ScalePaths {
	return view.ScalePaths{SpecReplicasPath: spec, StatusReplicasPath: current, LabelSelectorPath: selector}
}

// TestScaleOf_followsPaths: to numbers that exist, that are absent, and to values that
// are not numbers.
func TestScaleOf_followsPaths(t *testing.T) {
	for _, c := range []struct {
		paths  view.ScalePaths
		object string
		want   string // of the scale, or a part of the error
	}{
		{
			paths(".spec.size", ".status.size", ".status.of"), `{"spec":{"size":3},"status":{"size":2,"of":"app=web"}}`,
			`{"spec":{"replicas":3},"status":{"replicas":2,"selector":"app=web"}}`,
		},
		{
			paths(".spec.size", ".status.size", ""), `{"spec":{"size":3},"status":{"size":2,"of":"app=web"}}`,
			`{"spec":{"replicas":3},"status":{"replicas":2}}`,
		},
		{
			paths(".spec.size", ".status.size", ".status.of"), `{"spec":{"size":3}}`,
			`{"spec":{"replicas":3},"status":{"replicas":0}}`,
		},
		{paths(".spec.a.b", ".status.size", ""), `{"spec":{"a":{"b":0}}}`, `{"spec":{},"status":{"replicas":0}}`},
		{
			paths(".spec.size", ".status.size", ""), `{"spec":{}}`,
			`Internal error occurred: the spec replicas field ".spec.size" does not exist`,
		},
		{paths(".spec.size", ".status.size", ""), `{"spec":{"size":"3"}}`, `is of the type string, expected int64`},
		{
			paths(".spec.size", ".status.size", ""), `{"spec":{"size":3},"status":{"size":1.5}}`,
			`is of the type float64, expected int64`,
		},
		{
			paths(".spec.size", ".status.size", ".status.of"), `{"spec":{"size":3},"status":{"of":{}}}`,
			`expected string`,
		},
	} {
		kind := &wire.Kind{
			GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		}
		head := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"one","namespace":"shop","uid":"u","resourceVersion":"7","creationTimestamp":"2020-01-02T03:04:05Z","labels":{"a":"b"}},`
		o, err := wire.NewObject([]byte(head+c.object[1:]), wire.JSON, kind)
		if err != nil {
			t.Fatal(err)
		}
		value, err := view.Decode(o)
		if err != nil {
			t.Fatal(err)
		}
		scale, err := scaleOf(value, &c.paths)
		if err != nil {
			if !strings.Contains(status.Of(err).Message, c.want) || status.Of(err).Code != 500 {
				t.Errorf("%s by %v: %v, want %s", c.object, c.paths, err, c.want)
			}
			continue
		}
		got, err := json.Marshal(scale)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"one","namespace":"shop","uid":"u","resourceVersion":"7","creationTimestamp":"2020-01-02T03:04:05Z"},` + c.want[1:]
		if string(got) != want {
			t.Errorf("%s by %v:\n%s, want\n%s", c.object, c.paths, got, want)
		}
	}
	if scale, err := scaleOf(&unstructured.Unstructured{}, nil); err == nil {
		t.Errorf("without paths: %v", scale)
	}
}

// TestScaleOf_readsTypes: typed objects have scales, with selectors in the API server's
// form.
func TestScaleOf_readsTypes(t *testing.T) {
	five := int32(5)
	selector := &metav1.LabelSelector{
		MatchLabels: map[string]string{"b": "2", "a": "1"},
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "c", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"y", "x"}},
		},
	}
	for _, c := range []struct {
		of           runtime.Object
		spec, status int32
		selector     string
	}{
		{
			&appsv1.Deployment{
				Spec:   appsv1.DeploymentSpec{Replicas: &five, Selector: selector},
				Status: appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 7},
			}, 5, 1, "a=1,b=2,c notin (x,y)",
		},
		{
			&appsv1.ReplicaSet{
				Spec:   appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{}},
				Status: appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 7},
			}, 1, 2, "",
		},
		{
			&appsv1.StatefulSet{
				Spec:   appsv1.StatefulSetSpec{Replicas: new(int32)},
				Status: appsv1.StatefulSetStatus{Replicas: 3, ReadyReplicas: 7},
			}, 0, 3, "",
		},
		{
			&corev1.ReplicationController{
				Spec: corev1.ReplicationControllerSpec{
					Replicas: &five,
					Selector: map[string]string{"b": "2", "a": "1"},
				},
				Status: corev1.ReplicationControllerStatus{Replicas: 4, ReadyReplicas: 7},
			}, 5, 4, "a=1,b=2",
		},
	} {
		scale, err := scaleOf(c.of, nil)
		if err != nil {
			t.Errorf("%T: %v", c.of, err)
			continue
		}
		if scale.Spec.Replicas != c.spec || scale.Status.Replicas != c.status || scale.Status.Selector != c.selector {
			t.Errorf("%T: %+v %+v, want %d, %d of %q", c.of, scale.Spec, scale.Status, c.spec, c.status, c.selector)
		}
	}
	bad := &appsv1.Deployment{
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: "Near"}},
			},
		},
	}
	if scale, err := scaleOf(bad, nil); err == nil {
		t.Errorf("selector that is none: %v", scale)
	}
}

// TestCopied checks which subresources a copy of an object has.
func TestCopied(t *testing.T) {
	resource := func(group, version, name, kind string) kube.Resource {
		return kube.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: name},
			Kind:                 kind,
		}
	}
	read, scale := []string{"get", "update"}, scaleKind.GroupVersionKind
	pod, deployment, widget := resource("", "v1", "pods", "Pod"), resource("apps", "v1", "deployments", "Deployment"),
		resource("example.com", "v1", "widgets", "Widget")
	for _, c := range []struct {
		of      kube.Resource
		below   kube.Subresource
		defined bool
		want    bool
	}{
		{pod, kube.Subresource{Name: "status", GroupVersionKind: pod.GroupVersionKind(), Verbs: read}, false, true},
		{
			pod, kube.Subresource{
				Name: "status", GroupVersionKind: pod.GroupVersionKind(), Verbs: []string{"update"},
			}, true, false,
		},
		{pod, kube.Subresource{Name: "status", GroupVersionKind: scale, Verbs: read}, true, false},
		{pod, kube.Subresource{Name: "resize", GroupVersionKind: pod.GroupVersionKind(), Verbs: read}, false, true},
		{
			widget, kube.Subresource{
				Name: "resize", GroupVersionKind: widget.GroupVersionKind(), Verbs: read,
			}, true, false,
		},
		{
			pod, kube.Subresource{
				Name: "log", GroupVersionKind: pod.GroupVersionKind(), Verbs: []string{"get"},
			}, true, false,
		},
		{pod, kube.Subresource{Name: scaleName, GroupVersionKind: scale, Verbs: read}, true, false},
		{deployment, kube.Subresource{Name: scaleName, GroupVersionKind: scale, Verbs: read}, false, true},
		{
			deployment, kube.Subresource{
				Name:             scaleName,
				GroupVersionKind: schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Scale"},
				Verbs:            read,
			}, true, false,
		},
		{widget, kube.Subresource{Name: scaleName, GroupVersionKind: scale, Verbs: read}, true, true},
		// without definitions the paths are not known
		{widget, kube.Subresource{Name: scaleName, GroupVersionKind: scale, Verbs: read}, false, false},
	} {
		if got := InCopy(c.of, c.below, c.defined); got != c.want {
			t.Errorf("%s/%s as %s, with definitions %t: %t", c.of.Resource, c.below.Name, c.below.Kind, c.defined, got)
		}
		some := WithCopied([]kube.Resource{
			{
				GroupVersionResource: c.of.GroupVersionResource,
				Kind:                 c.of.Kind,
				Subresources:         []kube.Subresource{c.below},
			},
		}, c.defined)
		if listed := len(some[0].Subresources) > 0; listed != c.want {
			t.Errorf("%s/%s as %s, with definitions %t: listed is %t", c.of.Resource, c.below.Name, c.below.Kind,
				c.defined, listed)
		}
	}
}

// TestNotCopied: the error contains the address to use instead.
func TestNotCopied(t *testing.T) {
	err := status.NotCopied(pods, "log", "https://eu.example.com")
	const want = "pods/log is not available here: this replica serves only subresources that are made from the " +
		"object; send the request to https://eu.example.com"
	var got *apierrors.StatusError
	if !errors.As(err, &got) || got.ErrStatus.Message != want || got.ErrStatus.Code != 405 {
		t.Errorf("%v, want %s", err, want)
	}
}
