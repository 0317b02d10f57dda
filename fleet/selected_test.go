// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
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

// The definitions of types are read whether they are selected or not, unless they are out of
// the scope.
func TestOptions_Selected(t *testing.T) {
	var served []kube.Resource
	for _, s := range []string{
		"secrets.v1!", "pods.v1!", "customresourcedefinitions.v1.apiextensions.k8s.io!",
		"apiservices.v1.apiregistration.k8s.io!", "deployments.v1.apps!",
	} {
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
		{
			Options{Except: []string{"*.apiregistration.k8s.io"}}, "customresourcedefinitions,deployments,pods",
			"apiservices",
		},
		{Options{Scope: Scope{Namespace: "a"}}, "deployments,pods", ""},
	} {
		mirrored, metadata, err := tt.opts.Selected(served)
		if err != nil || resourceNames(mirrored) != tt.mirrored || resourceNames(metadata) != tt.metadata {
			t.Errorf("%v: mirrored %s, metadata %s: %v", tt.opts.Resources, resourceNames(mirrored),
				resourceNames(metadata), err)
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
