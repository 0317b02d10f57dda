// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
)

// resource parses a served resource: "deployments.v1.apps", with a "!" if it is preferred
// and a "-" if it cannot be watched.
func resource(text string) kube.Resource {
	r := kube.Resource{Verbs: []string{"get", "list", "watch"}}
	if name, ok := strings.CutSuffix(text, "!"); ok {
		text, r.Preferred = name, true
	}
	if name, ok := strings.CutSuffix(text, "-"); ok {
		text, r.Verbs = name, []string{"get", "list"}
	}
	parts := strings.SplitN(text, ".", 3)
	r.Resource, r.Version = parts[0], parts[1]
	if len(parts) > 2 {
		r.Group = parts[2]
	}
	return r
}

func TestSelection_resolve(t *testing.T) {
	served := []string{
		"pods.v1!", "secrets.v1!", "events.v1!", "bindings.v1-!", "deployments.v1.apps!", "deployments.v1beta9.apps",
		"leases.v1.coordination.k8s.io!", "events.v1.events.k8s.io!", "horizontalpodautoscalers.v9.autoscaling!",
		"horizontalpodautoscalers.v2.autoscaling", "horizontalpodautoscalers.v1.autoscaling", "gadgets.v2.example.com!", "gadgets.v1.example.com",
		"gizmos.v2.example.com-!", "gizmos.v1.example.com", "pods.v1beta1.metrics.k8s.io-!", "ingresses.v1beta1.extensions!",
	}
	var resources []kube.Resource
	for _, s := range served {
		resources = append(resources, resource(s))
	}
	for _, tt := range []struct {
		name        string
		take, leave []string
		want        []string
	}{
		{"everything, as it is meant", nil, nil,
			[]string{"deployments.v1.apps", "gadgets.v2.example.com", "gizmos.v1.example.com", "horizontalpodautoscalers.v2.autoscaling", "pods.v1"}},
		{"by name", []string{"pods", "secrets"}, nil, []string{"pods.v1", "secrets.v1"}},
		{"of a group", []string{"*.apps", "*.coordination.k8s.io"}, nil, []string{"deployments.v1.apps"}},
		{"of any group", []string{"events.*"}, nil, nil},
		{"events of one group", []string{"events.events.k8s.io"}, nil, []string{"events.v1.events.k8s.io"}},
		{"everything and leases", []string{"*", "leases.coordination.k8s.io"}, []string{"*.example.com", "deployments.apps"},
			[]string{"horizontalpodautoscalers.v2.autoscaling", "leases.v1.coordination.k8s.io", "pods.v1"}},
		{"nothing that there is", []string{"widgets"}, nil, nil},
		{"but not", []string{"pods"}, []string{"*"}, nil},
	} {
		s, err := newSelection(tt.take, tt.leave)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, r := range s.resolve(resources) {
			got = append(got, strings.TrimSuffix(r.Resource+"."+r.Version+"."+r.Group, "."))
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, not %v", tt.name, got, tt.want)
		}
	}
	for _, bad := range []string{"", "po*", "pods.", ".apps", "a b", "pods/log", "*.*x"} {
		if _, err := newSelection([]string{bad}, nil); err == nil {
			t.Errorf("%q is a pattern", bad)
		}
	}
}

func TestUnknown_isWhatDiscoveryCouldNotSay(t *testing.T) {
	apps := &kube.GroupError{GroupVersion: schema.GroupVersion{Group: "apps", Version: "v1"}, Err: kube.ErrStale}
	other := &kube.GroupError{GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}, Err: kube.ErrStale}
	in := func(group string) schema.GroupResource { return schema.GroupResource{Group: group, Resource: "x"} }
	for _, tt := range []struct {
		name    string
		missing error
		group   string
		want    bool
	}{
		{"nothing is missing", nil, "apps", false},
		{"its group", apps, "apps", true},
		{"another group", apps, "batch", false},
		{"one of several", errors.Join(errors.Join(other), errors.Join(apps)), "apps", true},
		{"none of several", errors.Join(other, apps), "batch", false},
		{"one half of discovery", errors.Join(errors.New("connection reset"), apps), "batch", true},
	} {
		if got := unknown(in(tt.group), tt.missing); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// The definitions of types are read whether they are selected or not, unless they are out of
// the scope.
func TestOptions_Selected(t *testing.T) {
	var served []kube.Resource
	for _, s := range []string{"secrets.v1!", "pods.v1!", "customresourcedefinitions.v1.apiextensions.k8s.io!", "apiservices.v1.apiregistration.k8s.io!", "deployments.v1.apps!"} {
		r := resource(s)
		r.Namespaced = !strings.Contains(s, "api")
		served = append(served, r)
	}
	for _, tt := range []struct {
		opts               Options
		mirrored, metadata string
	}{
		{Options{}, "apiservices,customresourcedefinitions,deployments,pods", ""},
		{Options{Resources: []string{"pods", "secrets"}}, "pods,secrets", "apiservices,customresourcedefinitions"},
		{Options{Except: []string{"*.apiregistration.k8s.io"}}, "customresourcedefinitions,deployments,pods", "apiservices"},
		{Options{Scope: Scope{Namespace: "a"}}, "deployments,pods", ""},
	} {
		mirrored, metadata, err := tt.opts.Selected(served)
		if err != nil || resourceNames(mirrored) != tt.mirrored || resourceNames(metadata) != tt.metadata {
			t.Errorf("%v: mirrored %s, metadata %s: %v", tt.opts.Resources, resourceNames(mirrored), resourceNames(metadata), err)
		}
	}
	if _, _, err := (&Options{Resources: []string{"a/b"}}).Selected(served); err == nil {
		t.Error("a pattern that is not one is accepted")
	}
}

func resourceNames(all []kube.Resource) string {
	var names []string
	for _, r := range all {
		names = append(names, r.Resource)
	}
	return strings.Join(names, ",")
}
