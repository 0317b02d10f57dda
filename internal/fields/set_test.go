// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields_test

import (
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubefields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/fields"
)

var pods = fields.For(corev1.SchemeGroupVersion.WithKind("Pod"))

func parse(t *testing.T, s *fields.Set, text string) kubefields.Selector {
	t.Helper()
	selector, err := s.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

func TestSet_selects(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}
	pod.Spec.NodeName, pod.Spec.HostNetwork, pod.Status.PodIP = "n", true, "10.0.0.1"
	event := &eventsv1.Event{ReportingController: "c", Regarding: corev1.ObjectReference{Kind: "Pod"}}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"size": int64(7), "shiny": false, "text": nil},
	}}
	custom, err := fields.Custom(true, []string{".spec.size", ".spec.shiny", ".spec.text", ".spec.size.more"})
	if err != nil {
		t.Fatal(err)
	}
	events := fields.For(eventsv1.SchemeGroupVersion.WithKind("Event"))
	for _, c := range []struct {
		set      *fields.Set
		obj      runtime.Object
		selector string
		want     bool
	}{
		{pods, pod, "", true},
		{pods, pod, "metadata.name=a,metadata.namespace=b", true},
		{pods, pod, "metadata.name=a,metadata.namespace!=b", false},
		{pods, pod, "spec.host=n", true},
		{pods, pod, "spec.host!=n", false},
		{pods, pod, "spec.hostNetwork=true", true},
		{pods, pod, "status.podIP=10.0.0.1", true},
		{pods, pod, "status.podIPs=10.0.0.1", false},
		{pods, pod, "status.podIPs=", true},
		{pods, widget, "metadata.name=w,spec.nodeName=", true},
		{pods, &metav1.Status{}, "metadata.name=", true},
		{events, event, "regarding.kind=Pod,reportingController=c", true},
		{custom, widget, "spec.size=7,spec.shiny=false,spec.text=", true},
		{custom, widget, "spec.size=8", false},
		{custom, widget, "spec.size.more=", true},
		{custom, pod, "spec.size=,metadata.namespace=b", true},
		{fields.For(schema.GroupVersionKind{Kind: "Unheard"}), widget, "metadata.name=w", true},
	} {
		if got := parse(t, c.set, c.selector).Matches(c.set.Of(c.obj)); got != c.want {
			t.Errorf("%q selects %T: %t, want %t", c.selector, c.obj, got, c.want)
		}
	}
}

func TestSet_refuses(t *testing.T) {
	cluster, err := fields.Custom(false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set            *fields.Set
		selector, want string
	}{
		{pods, "spec.image=a", "field label not supported: spec.image"},
		{pods, "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"},
		{cluster, "metadata.namespace=a", "field label not supported: metadata.namespace"},
		{
			fields.For(corev1.SchemeGroupVersion.WithKind("ConfigMap")), "data=a",
			`"data" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		},
	} {
		_, err := c.set.Parse(c.selector)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.selector, err, c.want)
		}
		if !apierrors.IsBadRequest(err) || err.(apierrors.APIStatus).Status().Code != http.StatusBadRequest {
			t.Errorf("%q: %#v is no bad request", c.selector, err)
		}
	}
}

func TestSet_has(t *testing.T) {
	of := pods.Of(&corev1.Pod{})
	for label, want := range map[string]bool{
		"spec.nodeName": true, "metadata.name": true, "spec.host": false, "nonsense": false,
	} {
		if of.Has(label) != want {
			t.Errorf("a pod has %s: %t, want %t", label, !want, want)
		}
	}
	if !pods.Supports("spec.host") || pods.Supports("nonsense") {
		t.Error("wrong labels are supported")
	}
}

func TestCustom_wantsPaths(t *testing.T) {
	for _, path := range []string{"", ".", "spec", ".spec..a", ".spec.a[0]", ".spec.*", ".spec['a']", ".spec."} {
		if _, err := fields.Custom(true, []string{path}); err == nil {
			t.Errorf("%q is taken for a path of fields", path)
		}
	}
}

func TestOnlyMetadata(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "metadata.name=a": true, "metadata.name=a,metadata.namespace!=b": true,
		"metadata.name=a,spec.host=b": false,
		"status.phase=Running":        false,
	} {
		if got := fields.OnlyMetadata(parse(t, pods, text)); got != want {
			t.Errorf("%q needs only metadata: %t, want %t", text, got, want)
		}
	}
}

func TestSet_isShared(t *testing.T) {
	selector := parse(t, pods, "spec.host=n,metadata.name=a")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n"}}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if !selector.Matches(pods.Of(pod)) {
					t.Error("the pod is not selected")
					return
				}
			}
		})
	}
	all.Wait()
}
