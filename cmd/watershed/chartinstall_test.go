// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestDeploy uses the chart and the kustomize base with a real API server.
func TestDeploy(t *testing.T) {
	needsDeploy(t, "full")
	k := kubetest.Start(t, &kubetest.Options{
		Name: "real", Users: []kubetest.User{{Name: "jane"}, {Name: "joe"}},
		// The plugin keeps claims until a controller has released them, and there is none.
		APIServerArgs: []string{"--disable-admission-plugins=StorageObjectInUseProtection"},
	})
	c := newChart(t)
	c.kubeconfig = k.Kubeconfig()
	t.Run("resources", func(t *testing.T) { checkDefaultResources(t, k, c) })
	t.Run("release", func(t *testing.T) { checkRelease(t, k, c) })
	t.Run("manifests", func(t *testing.T) { checkManifests(t, k, c) })
	t.Run("process", func(t *testing.T) { checkProcess(t, k, c) })
}

// checkDefaultResources compares the default resources of the chart with those that serve
// mirrors by default. They depend on the version of Kubernetes; the test has the newest one.
func checkDefaultResources(t *testing.T, k *kubetest.Cluster, c *chart) {
	d := deploymentOf(t, c.render(t))
	text, err := command(t.Context(), "rbac", "--kubeconfig", k.Kubeconfig(), "--name", d.Name, "--service-account",
		d.Namespace+"/"+d.Spec.Template.Spec.ServiceAccountName)
	expect.NoError(t, err)
	expect.Equal(t, rightsOf(c.render(t)), rightsOf(parseManifests(t, text)))
}

// volatile are the kinds that the API server itself writes at any time.
var volatile = map[schema.GroupKind]bool{
	{Kind: "Event"}: true, {Group: "events.k8s.io", Kind: "Event"}: true,
	{Group: "coordination.k8s.io", Kind: "Lease"}:   true,
	{Group: "networking.k8s.io", Kind: "IPAddress"}: true, {Kind: "Endpoints"}: true,
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: true,
}

// inventory returns the identities of all objects of a cluster.
func inventory(ctx context.Context, k *kubetest.Cluster) (map[string]bool, error) {
	// A connection of their own lets the clients be closed.
	config := k.Config()
	documents, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredResources(documents)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			kind := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") || volatile[kind] {
				continue
			}
			objects, err := client.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range objects.Items {
				found[kind.String()+" "+o.Namespace+"/"+o.Name] = true
			}
		}
	}
	return found, nil
}

// settledInventory returns the inventory of a cluster that has just started, once the API server
// has created its own objects.
func settledInventory(ctx context.Context, t *testing.T, k *kubetest.Cluster) map[string]bool {
	t.Helper()
	var last map[string]bool
	expect.Eventually(t, time.Minute, func() error {
		now, err := inventory(ctx, k)
		if err != nil {
			return err
		}
		same := maps.Equal(now, last)
		if last = now; same {
			return nil
		}
		time.Sleep(time.Second) // two inventories that are equal must not be of the same moment
		return errors.New("the cluster creates objects of its own")
	})
	return last
}

// difference returns the identities that are in one inventory and not in another.
func difference(a, b map[string]bool) []string {
	var only []string
	for _, id := range slices.Sorted(maps.Keys(a)) {
		if !b[id] {
			only = append(only, id)
		}
	}
	return only
}

// checkRelease installs, upgrades and uninstalls the chart. After each step the cluster has the
// objects that it had before, those that the chart renders, and those of Helm itself.
func checkRelease(t *testing.T, k *kubetest.Cluster, c *chart) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if out, err := k.Kubectl(ctx, "create", "namespace", "shop"); err != nil {
		t.Fatal(out, err)
	}
	before := settledInventory(ctx, t, k)
	releases := 0
	for _, shape := range []string{"default", "members", "narrow", "namespace", "only-members", "hub", "default"} {
		values := filepath.Join(chartDir, "ci", shape+"-values.yaml")
		_, err := c.run(ctx, "upgrade", "--install", chartRelease, chartDir, "--namespace", chartNamespace,
			"--create-namespace", "--reset-values", "--values", values)
		expect.NoError(t, err)
		releases++
		want := maps.Clone(before)
		want["Namespace /"+chartNamespace] = true
		for n := 1; n <= releases; n++ {
			want[fmt.Sprintf("Secret %s/sh.helm.release.v1.%s.v%d", chartNamespace, chartRelease, n)] = true
		}
		rendered := c.render(t, "--values", values)
		for _, o := range rendered {
			want[objectID(o)] = true
		}
		got, err := inventory(ctx, k)
		expect.NoError(t, err)
		if missing, extra := difference(want, got), difference(got, want); len(missing)+len(extra) > 0 {
			t.Errorf("after the upgrade to %s: missing %v, extra %v", shape, missing, extra)
		}
		checkLive(ctx, t, k, rendered)
	}
	_, err := c.run(ctx, "uninstall", chartRelease, "--namespace", chartNamespace, "--wait")
	expect.NoError(t, err)
	after, err := inventory(ctx, k)
	expect.NoError(t, err)
	before["Namespace /"+chartNamespace] = true // Helm leaves it
	if left, gone := difference(after, before), difference(before, after); len(left)+len(gone) > 0 {
		t.Errorf("after the uninstallation: left %v, gone %v", left, gone)
	}
}

// checkLive checks that the arguments of the Deployment in the cluster are the rendered ones.
func checkLive(ctx context.Context, t *testing.T, k *kubetest.Cluster, rendered []*unstructured.Unstructured) {
	t.Helper()
	want := deploymentOf(t, rendered)
	text, err := k.Kubectl(ctx, "-n", want.Namespace, "get", "deployment", want.Name, "-o", "json")
	expect.NoError(t, err)
	got := deploymentOf(t, parseManifests(t, text))
	expect.Equal(t, got.Spec.Template.Spec.Containers[0].Args, want.Spec.Template.Spec.Containers[0].Args)
}

// checkManifests lets the API server validate all that the chart and the kustomize folders
// render, without unknown fields, and checks that the pods are allowed at the level restricted.
func checkManifests(t *testing.T, k *kubetest.Cluster, c *chart) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	installDefinitions(ctx, t, k)
	_, err := k.Kubectl(ctx, "label", "namespace", chartNamespace, "pod-security.kubernetes.io/enforce=restricted")
	expect.NoError(t, err)
	conform := newKubeconform(ctx, t, k)
	check := func(name, text string) {
		t.Run(name, func(t *testing.T) {
			if out, err := k.KubectlInput(ctx, text, "apply", "--dry-run=server", "--validate=strict", "-f",
				"-"); err != nil {
				t.Error(out, err)
			}
			if conform != nil {
				expect.NoError(t, conform.validate(ctx, text))
			}
			d := deploymentOf(t, parseManifests(t, text))
			expect.NoError(t, tryPod(ctx, k, d.Spec.Template))
			loose := d.Spec.Template.DeepCopy()
			loose.Spec.SecurityContext.SeccompProfile = nil
			if err := tryPod(ctx, k, *loose); err == nil || !strings.Contains(err.Error(), "seccompProfile") {
				t.Errorf("a pod without a seccomp profile: %v", err)
			}
		})
	}
	for _, values := range shapes(t) {
		text, err := c.template(ctx, "--values", values)
		expect.NoError(t, err)
		check(filepath.Base(values), text)
	}
	for _, dir := range []string{"base", "overlays/members"} {
		text, _ := kustomize(t, dir)
		check(dir, text)
	}
	// An unknown field is refused, so the check above means something.
	wrong := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x","namespace":"watershed"},"spec":{"port":[]}}`
	if _, err := k.KubectlInput(ctx, wrong, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
		t.Error("the API server accepts an unknown field")
	}
	if conform != nil && conform.validate(ctx, wrong) == nil {
		t.Error("kubeconform accepts an unknown field")
	}
}

// tryPod asks the API server whether it would create a pod.
func tryPod(ctx context.Context, k *kubetest.Cluster, template corev1.PodTemplateSpec) error {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = "try"
	config := k.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(chartNamespace).Create(ctx, pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// definitions are the files of the types of other projects that the chart can use, in their
// modules.
var definitions = map[string][]string{
	"github.com/cert-manager/cert-manager@v1.21.2": {"deploy/crds/cert-manager.io_certificates.yaml"},
	"github.com/prometheus-operator/prometheus-operator@v0.85.0": {
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
	},
}

// installDefinitions adds the types of cert-manager and of the Prometheus operator.
func installDefinitions(ctx context.Context, t *testing.T, k *kubetest.Cluster) {
	t.Helper()
	for module, files := range definitions {
		download := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
		download.Dir, download.Env = t.TempDir(), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		out, err := download.Output()
		expect.NoError(t, err)
		var downloaded struct{ Dir string }
		expect.NoError(t, json.Unmarshal(out, &downloaded))
		for _, file := range files {
			path := filepath.Join(downloaded.Dir, file)
			_, err := k.Kubectl(ctx, "create", "-f", path)
			expect.NoError(t, err)
			_, err = k.Kubectl(ctx, "wait", "--for=condition=Established", "-f", path, "--timeout=30s")
			expect.NoError(t, err)
		}
	}
}
