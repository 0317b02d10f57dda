// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/internal/expect"
)

// objectOf returns the object of a kind whose name has a suffix.
func objectOf[T any](t *testing.T, objects []*unstructured.Unstructured, kind, suffix string) *T {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && strings.HasSuffix(o.GetName(), suffix) {
			into := new(T)
			expect.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true))
			return into
		}
	}
	t.Fatalf("there is no %s whose name ends with %q", kind, suffix)
	return nil
}

// checkGroup checks the objects of two replicas that are a group, whose Leases are in a namespace.
func checkGroup(t *testing.T, objects []*unstructured.Unstructured, namespace string) {
	t.Helper()
	d := deploymentOf(t, objects)
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 2 {
		t.Errorf("the replicas are %v, want 2", d.Spec.Replicas)
	}
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if !slices.Contains(c.Args, "--group-address=[$(POD_IP)]:7444") {
		t.Errorf("the pod does not tell its address: %q", c.Args)
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "POD_IP" && e.ValueFrom != nil && e.ValueFrom.FieldRef.FieldPath == "status.podIP"
	}) {
		t.Errorf("the pod does not know its address: %v", c.Env)
	}
	if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return p.Name == "peers" && p.ContainerPort == 7444
	}) {
		t.Errorf("there is no port for peers: %v", c.Ports)
	}
	if pod.Affinity == nil || pod.Affinity.PodAntiAffinity == nil || len(pod.TopologySpreadConstraints) == 0 {
		t.Error("the pods are not spread")
	}
	budget := objectOf[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget", "")
	expect.Equal(t, budget.Spec.MaxUnavailable.IntValue(), 1)
	role := objectOf[rbacv1.Role](t, objects, "Role", ":group")
	expect.Equal(t, role.Namespace, namespace)
	expect.Equal(t, role.Rules, []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "list", "create", "update", "delete"},
	}})
	binding := objectOf[rbacv1.RoleBinding](t, objects, "RoleBinding", ":group")
	expect.Equal(t, binding.RoleRef.Name, role.Name)
	expect.Equal(t, binding.Subjects[0].Name, pod.ServiceAccountName)
	checkPeerPort(t, objectOf[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", ""), d)
}

// checkPeerPort checks that only the pods of the release reach the port for peers.
func checkPeerPort(t *testing.T, p *networkingv1.NetworkPolicy, d *appsv1.Deployment) {
	t.Helper()
	isPeers := func(p networkingv1.NetworkPolicyPort) bool { return p.Port != nil && p.Port.StrVal == "peers" }
	found := 0
	for _, rule := range p.Spec.Ingress {
		if len(rule.Ports) == 0 {
			t.Error("all ports can be reached")
		}
		if !slices.ContainsFunc(rule.Ports, isPeers) {
			continue
		}
		found++
		if len(rule.From) != 1 || rule.From[0].NamespaceSelector != nil || rule.From[0].IPBlock != nil {
			t.Fatalf("others reach the port for peers: %v", rule.From)
		}
		expect.Equal(t, rule.From[0].PodSelector.MatchLabels, d.Spec.Selector.MatchLabels)
	}
	if found != 1 {
		t.Errorf("%d rules admit peers, want 1", found)
	}
}

// TestChart_group checks the values for a group: in memory a Deployment has the pods, with files a StatefulSet
// that has a claim for each pod.
func TestChart_group(t *testing.T) {
	needsDeploy(t, "short", "full")
	c := newChart(t)
	values := func(name string) string { return filepath.Join(chartDir, "ci", name+"-values.yaml") }
	objects := c.render(t, "--values", values("group"))
	checkGroup(t, objects, chartNamespace)
	objectOf[appsv1.Deployment](t, objects, "Deployment", "")

	objects = c.render(t, "--values", values("group-files"))
	checkGroup(t, objects, "leases")
	s := objectOf[appsv1.StatefulSet](t, objects, "StatefulSet", "")
	service := objectOf[corev1.Service](t, objects, "Service", "-peers")
	expect.Equal(t, s.Spec.ServiceName, service.Name)
	if len(s.Spec.VolumeClaimTemplates) != 1 || s.Spec.VolumeClaimTemplates[0].Name != "state" {
		t.Errorf("the claims are %v", s.Spec.VolumeClaimTemplates)
	}
	for _, o := range objects {
		if o.GetKind() == "PersistentVolumeClaim" {
			t.Error("there is a claim that no pod uses")
		}
	}
	for _, set := range []string{"replicas=1", "state.persistence.existingClaim=one"} {
		if _, err := c.template(t.Context(), "--values", values("group-files"), "--set", set); err == nil {
			t.Errorf("the chart accepts %s in a group", set)
		}
	}
}

// TestKustomize_group checks the example of an overlay for a group.
func TestKustomize_group(t *testing.T) {
	needsDeploy(t, "short", "full")
	_, objects := kustomize(t, "overlays/group")
	checkGroup(t, objects, "watershed")
	d := deploymentOf(t, objects)
	checkRestricted(t, d)
	settingsOf(t, objects, d)
}
