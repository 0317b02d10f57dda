// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/internal/expect"
)

// rights are the contents of roles and bindings by their identity, without metadata.
type rights map[string]map[string]any

// rightsOf returns the rights of the program among the objects, except those of extra rules.
func rightsOf(objects []*unstructured.Unstructured) rights {
	all := rights{}
	for _, o := range objects {
		if o.GroupVersionKind().Group != "rbac.authorization.k8s.io" || strings.HasSuffix(o.GetName(), ":extra") || strings.HasSuffix(o.GetName(), ":metrics") {
			continue
		}
		content := o.DeepCopy().Object
		delete(content, "metadata")
		all[objectID(o)] = content
	}
	return all
}

// checkRights compares the rendered rights with those that watershed rbac prints for the flags
// of the container.
func checkRights(t *testing.T, objects []*unstructured.Unstructured, d *appsv1.Deployment) {
	t.Helper()
	args := rbacArguments(d)
	if args == nil {
		expect.Equal(t, rightsOf(objects), rights{})
		return
	}
	text, err := command(t.Context(), args...)
	expect.NoError(t, err)
	expect.Equal(t, rightsOf(objects), rightsOf(parseManifests(t, text)))
}

// rbacArguments returns the arguments of watershed rbac for a Deployment, nil if it does not
// mirror its own cluster.
func rbacArguments(d *appsv1.Deployment) []string {
	flags := flagsOf(d)
	name := flags["in-cluster"]
	if name == "" {
		return nil
	}
	args := []string{"rbac", "--name", d.Name, "--service-account", d.Namespace + "/" + d.Spec.Template.Spec.ServiceAccountName}
	for _, flag := range []string{"resources", "except", "namespace"} {
		if flags[flag] != "" {
			args = append(args, "--"+flag, flags[flag])
		}
	}
	if access.Matches(strings.Split(flags["local-rbac"], ","), name) {
		args = append(args, "--local-rbac")
	}
	return args
}

// flagsOf returns the flags of the container that have a value.
func flagsOf(d *appsv1.Deployment) map[string]string {
	flags := map[string]string{}
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if name, value, ok := strings.Cut(arg, "="); ok {
			flags[strings.TrimPrefix(name, "--")] = value
		}
	}
	return flags
}

// TestChart_patterns compares the rights of patterns of resources that the files of values do
// not have.
func TestChart_patterns(t *testing.T) {
	needsDeploy(t, "short", "full")
	c := newChart(t)
	for _, set := range [][]string{
		{"mirror.resources={pods}"},
		{"mirror.resources={pods,pods,configmaps}", "mirror.extraResources={configmaps}"},
		{"mirror.except={*}", "mirror.resources={pods,namespaces}"},
		{"mirror.except={events.*}"},
		{"mirror.except={pods,deployments.*,*.batch}"},
		{"mirror.except={customresourcedefinitions.apiextensions.k8s.io}"},
		{"mirror.except={*.apiregistration.k8s.io}"},
		{"mirror.resources={pods}", "access.localRBAC={other,in-cluster}"},
		{"mirror.resources={pods}", "access.localRBAC={other-*}"},
		{"mirror.resources={pods,nodes}", "mirror.namespace=shop"},
		{"clusters.inCluster.name=hub.eu", "mirror.resources={pods}", "access.localRBAC={hub*eu}"},
		{"serviceAccount.create=false", "serviceAccount.name=robot", "fullnameOverride=other"},
	} {
		var args []string
		for _, s := range set {
			args = append(args, "--set", s)
		}
		objects := c.render(t, args...)
		t.Run(strings.Join(set, " "), func(t *testing.T) { checkRights(t, objects, deploymentOf(t, objects)) })
	}
}
