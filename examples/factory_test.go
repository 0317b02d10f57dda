// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testFactoryByHand compares the factory by hand in a namespace with one pod and one config map.
func testFactoryByHand(t *testing.T, example func(string, ...string) *program, _ func(...string) string) {
	p := example("factory", "-by-hand")
	p.finish(t)
	want := []string{
		"# by hand: a map from type to informer",
		"OnAdd: web",
		"two callers have the same informer of pods: true",
		"informers: *v1.ConfigMap (1), *v1.Pod (1)",
		"pods as another type, requested late: synced false, 0 objects",
		"informers: *unstructured.Unstructured (0), *v1.ConfigMap (1), *v1.Pod (1)",
		"# watershed.Factory",
		"OnAdd: web",
		"informers: configmaps (1), pods (1)",
		"pods as another type, requested late: synced true, 1 objects",
		"informers: configmaps (1), pods (1)",
		"one of two leases of config maps is released: configmaps (1), pods (1)",
		"the other one is released: pods (1)",
		"config maps in memory: 0",
	}
	if diff := cmp.Diff(want, p.stdout.lines()); diff != "" {
		t.Errorf("factory -by-hand (-want +printed):\n%s", diff)
	}
}

// testQueries queries the cache of all resources for deployments in two namespaces, by
// each name that deployments have.
func testQueries(t *testing.T, example func(string, ...string) *program, kubectl func(...string) string) {
	for namespace, names := range map[string][]string{"default": {"web", "other"}, "kube-system": {"web"}} {
		for _, name := range names {
			kubectl("create", "deployment", name, "--image=web", "--replicas=0", "--namespace="+namespace)
		}
	}
	all := []string{"default other", "default web", "kube-system web"}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-all", "deployments", "-l", "app=web"}, all[1:]},
		{[]string{"-all", "deploy", "-l=app!=web"}, all[:1]},
		{[]string{"-l", "app in (web, other)", "-all", "Deployment"}, all},
		{[]string{"deployments.apps", "-all", "-l=app=nothing"}, nil},
	} {
		p := example("factory", c.args...)
		p.finish(t)
		lines := p.stdout.lines()
		if len(lines) != len(c.want)+2 {
			t.Errorf("%s printed %q", p.name, lines)
			continue
		}
		var got []string
		for _, line := range lines[1 : len(lines)-1] {
			got = append(got, regexp.MustCompile(`^(\S+) +(\S+) +\d+$`).ReplaceAllString(line, "$1 $2"))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +printed):\n%s", p.name, diff)
		}
		count := fmt.Sprintf(`^# %d of %d deployments\.apps in the cache of \d\d resources$`, len(c.want), len(all))
		if !slices.ContainsFunc(lines[len(lines)-1:], regexp.MustCompile(count).MatchString) {
			t.Errorf("%s ended with %s", p.name, lines[len(lines)-1])
		}
	}
}
