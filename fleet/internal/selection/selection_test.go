// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package selection

import (
	"slices"
	"strings"
	"testing"

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
		"horizontalpodautoscalers.v2.autoscaling", "horizontalpodautoscalers.v1.autoscaling", "gadgets.v2.example.com!",
		"gadgets.v1.example.com",
		"gizmos.v2.example.com-!", "gizmos.v1.example.com", "pods.v1beta1.metrics.k8s.io-!",
		"ingresses.v1beta1.extensions!",
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
			[]string{
				"deployments.v1.apps", "gadgets.v2.example.com", "gizmos.v1.example.com",
				"horizontalpodautoscalers.v2.autoscaling", "pods.v1",
			}},
		{"by name", []string{"pods", "secrets"}, nil, []string{"pods.v1", "secrets.v1"}},
		{"of a group", []string{"*.apps", "*.coordination.k8s.io"}, nil, []string{"deployments.v1.apps"}},
		{"of any group", []string{"events.*"}, nil, nil},
		{"events of one group", []string{"events.events.k8s.io"}, nil, []string{"events.v1.events.k8s.io"}},
		{"everything and leases", []string{"*", "leases.coordination.k8s.io"},
			[]string{"*.example.com", "deployments.apps"},
			[]string{"horizontalpodautoscalers.v2.autoscaling", "leases.v1.coordination.k8s.io", "pods.v1"}},
		{"nothing that there is", []string{"widgets"}, nil, nil},
		{"but not", []string{"pods"}, []string{"*"}, nil},
	} {
		s, err := New(tt.take, tt.leave)
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
		if _, err := New([]string{bad}, nil); err == nil {
			t.Errorf("%q is a pattern", bad)
		}
	}
}
