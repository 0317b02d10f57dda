// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// prometheusVariable is the name of the environment variable that, if set to "required", runs
// Prometheus' service discovery, which takes minutes to build.
const prometheusVariable = "WATERSHED_PROMETHEUS"

// TestPrometheus runs Prometheus' service discovery in all roles at the API server and through
// the replica, while targets come and go. Both must find the same targets.
func TestPrometheus(t *testing.T) {
	if os.Getenv(prometheusVariable) != "required" {
		t.Skip("Prometheus takes minutes to build: run make prometheus")
	}
	p := startPassing(t, &kubetest.Options{Name: "one"})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	expect.NoError(t, p.cluster.StartNodes(ctx, &kubetest.Controllers{Nodes: 2}))
	binary := filepath.Join(t.TempDir(), "prometheus")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = filepath.Join("..", "prometheus")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build prometheus: %v: %s", err, out)
	}
	work := &controlledWork{T: t, client: p.client(t, p.direct), pods: 10}
	for _, name := range []string{"node-0", "node-1"} { // Prometheus ignores nodes without an address
		_, err := work.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType,
			[]byte(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`), metav1.PatchOptions{},
			"status")
		expect.NoError(t, err)
	}
	direct, through := startDiscovery(t, binary, p.direct), startDiscovery(t, binary, p.through)
	same := func(wants ...string) func(context.Context) error {
		return func(context.Context) error { return sameTargets(direct, through, wants...) }
	}
	work.step(ctx, "create", work.create, func(ctx context.Context) error { return work.reached(ctx, work.size()) })
	work.step(ctx, "ingress", func(ctx context.Context) error {
		ingress := &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "example.com"}}},
		}
		_, err := work.client.NetworkingV1().Ingresses(workNamespace).Create(ctx, ingress, metav1.CreateOptions{})
		return err
	}, same("10 pod", "2 node", "2 service", "2 endpointslice", "2 endpoints", "1 ingress"))
	work.step(ctx, "scale down", work.scale(1), same("2 pod"))
	work.step(ctx, "delete", work.deleteDeployments, same("0 pod", "2 service"))
}

// startDiscovery starts the service discovery for an access. It ends with the test.
func startDiscovery(t *testing.T, binary string, at *rest.Config) *logBuffer {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfigOf(t, kubeconfig, at)
	cmd := exec.Command(binary, kubeconfig)
	cmd.SysProcAttr = program.ChildAttr()
	var out, trouble logBuffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// The kernel ends the child with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	expect.NoError(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := <-ended; err != nil {
			t.Errorf("prometheus: %v", err)
		}
		for line := range strings.Lines(trouble.String()) {
			// The use of Endpoints is deprecated, also at the API server.
			if !strings.Contains(line, "v1 Endpoints is deprecated") {
				t.Errorf("prometheus: %s", line)
			}
		}
	})
	return &out
}

// sameTargets returns an error unless two service discoveries have the same targets, and the
// work has a number of groups in some roles, such as "2 pod".
func sameTargets(direct, through *logBuffer, wants ...string) error {
	want, got := lastLine(direct), lastLine(through)
	if want == "" || got != want {
		return fmt.Errorf("targets through the replica\n%s\nat the API server\n%s", got, want)
	}
	var all map[string][]struct{ Source string }
	if err := json.Unmarshal([]byte(want), &all); err != nil {
		return err
	}
	for _, text := range wants {
		var n, found int
		var role string
		if _, err := fmt.Sscan(text, &n, &role); err != nil {
			return err
		}
		for _, g := range all[role] {
			if role == "node" || strings.Contains(g.Source, "/"+workNamespace+"/") {
				found++
			}
		}
		if found != n {
			return fmt.Errorf("%d groups of role %s, want %d: %w", found, role, n, errors.New(want))
		}
	}
	return nil
}

// lastLine returns the last complete line of an output.
func lastLine(b *logBuffer) string {
	text := b.String()
	end := strings.LastIndexByte(text, '\n')
	if end < 0 {
		return ""
	}
	return text[strings.LastIndexByte(text[:end], '\n')+1 : end]
}
