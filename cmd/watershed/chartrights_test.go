// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/internal/expect"
)

// rights are the contents of roles and bindings by their identity, without metadata.
type rights map[string]map[string]any

// rightsOf returns the rights of the program among the objects, without the rights of extra rules, and without
// the rights of a group, which TestChart_group checks.
func rightsOf(objects []*unstructured.Unstructured) rights {
	all := rights{}
	for _, o := range objects {
		if o.GroupVersionKind().Group != "rbac.authorization.k8s.io" || strings.HasSuffix(o.GetName(), ":extra") ||
			strings.HasSuffix(o.GetName(), ":metrics") || strings.HasSuffix(o.GetName(), ":group") {
			continue
		}
		content := o.DeepCopy().Object
		delete(content, "metadata")
		all[objectID(o)] = content
	}
	return all
}

// checkRights compares the rendered rights with those that watershed rbac prints for the
// settings of the container.
func checkRights(t *testing.T, objects []*unstructured.Unstructured, o *settings.Settings, d *appsv1.Deployment) {
	t.Helper()
	if o.Sources.InCluster == "" {
		expect.Equal(t, rightsOf(objects), rights{})
		return
	}
	args := []string{
		"rbac", "--name", d.Name, "--service-account", d.Namespace + "/" + d.Spec.Template.Spec.ServiceAccountName,
		"--resources", strings.Join(o.Resources, ","), "--except", strings.Join(o.Except, ","), "--namespace",
		o.Scope.Namespace,
	}
	if access.Matches(o.Access.LocalRBAC, o.Sources.InCluster) {
		args = append(args, "--local-rbac")
	}
	text, err := command(t.Context(), args...)
	expect.NoError(t, err)
	expect.Equal(t, rightsOf(objects), rightsOf(parseManifests(t, text)))
}

// TestChart_patterns compares the rights of patterns of resources that the files of values do
// not have.
func TestChart_patterns(t *testing.T) {
	needsDeploy(t, "short", "full")
	c := newChart(t)
	for _, set := range [][]string{
		{"config.mirror.resources={pods}"},
		{"config.mirror.resources={pods,pods,configmaps}", "extraResources={configmaps}"},
		{"config.mirror.except={*}", "config.mirror.resources={pods,namespaces}"},
		{"config.mirror.except={events.*}"},
		{"config.mirror.except={pods,deployments.*,*.batch}"},
		{"config.mirror.except={customresourcedefinitions.apiextensions.k8s.io}"},
		{"config.mirror.except={*.apiregistration.k8s.io}"},
		{"config.mirror.resources={pods}", "config.authorization.localRBAC={other,in-cluster}"},
		{"config.mirror.resources={pods}", "config.authorization.localRBAC={other-*}"},
		{"config.mirror.resources={pods,nodes}", "config.mirror.namespace=shop"},
		{"clusters.inCluster.name=hub.eu", "config.mirror.resources={pods}", "config.authorization.localRBAC={hub*eu}"},
		{"serviceAccount.create=false", "serviceAccount.name=robot", "fullnameOverride=other"},
	} {
		var args []string
		for _, s := range set {
			args = append(args, "--set", s)
		}
		objects := c.render(t, args...)
		t.Run(strings.Join(set, " "), func(t *testing.T) {
			d := deploymentOf(t, objects)
			checkRights(t, objects, settingsOf(t, objects, d), d)
		})
	}
}
