// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest"
)

func TestCluster_withNodes(t *testing.T) {
	begin := time.Now()
	c := kubetest.Start(t, &kubetest.Options{Nodes: 2})
	t.Logf("a complete cluster with 2 nodes started in %s", time.Since(begin).Round(10*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := kubectl("get", "nodes", "--no-headers"); strings.Count(out, " Ready ") != 2 {
		t.Errorf("nodes:\n%s", out)
	}

	begin = time.Now()
	kubectl("run", "nettool", "--image=nettool")
	kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
	if err := c.CreateDeployments(ctx, "default", 2, 2); err != nil {
		t.Fatal(err)
	}
	kubectl("wait", "pod/nettool", "--for=condition=Ready", "--timeout=60s")
	for _, d := range []string{"web", "deployment-0", "deployment-1"} {
		kubectl("rollout", "status", "deployment/"+d, "--timeout=60s")
	}
	out := kubectl("get", "pods", "--no-headers")
	t.Logf("8 pods were Running after %s:\n%s", time.Since(begin).Round(10*time.Millisecond), out)
	if strings.Count(out, " Running ") != 8 {
		t.Errorf("pods:\n%s", out)
	}

	begin = time.Now()
	kubectl("delete", "pod", "nettool", "--timeout=60s")
	t.Logf("a pod was deleted in %s", time.Since(begin).Round(10*time.Millisecond))
	if _, err := c.Kubectl(ctx, "get", "pod", "nettool"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the deleted pod: %v", err)
	}

	if err := c.LoadPods(ctx, kubetest.Workload{}, 1); err == nil {
		t.Error("pods were loaded that the controllers delete")
	}
}

// TestCluster_kubelet checks that the kubelet endpoints of nodes serve logs and exec. Conformance tests cover the rest.
func TestCluster_kubelet(t *testing.T) {
	if _, err := kubetest.New(t.Context(), &kubetest.Options{Kubelet: &kubetest.Kubelet{}}); err == nil {
		t.Error("a kubelet without a node")
	}
	c := kubetest.Start(t, &kubetest.Options{Nodes: 1, Kubelet: &kubetest.Kubelet{}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.AppendLog("a line"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ args, want string }{
		{"run web --image=web", "pod/web created\n"},
		{"wait pod/web --for=condition=Ready --timeout=60s", "pod/web condition met\n"},
		{"logs web", "a line\n"},
		{"exec web -- echo a command", "a command\n"},
	} {
		if out, err := c.Kubectl(ctx, strings.Fields(step.args)...); err != nil || out != step.want {
			t.Fatalf("kubectl %s: %q %v", step.args, out, err)
		}
	}
}
