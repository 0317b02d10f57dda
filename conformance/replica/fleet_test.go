// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestFleetView reads two clusters as one: kubectl prints the cluster of a pod, and
// continues to watch when a cluster joins.
func TestFleetView(t *testing.T) {
	if os.Getenv(subjectVariable) == "server" {
		t.Skip("kube-apiserver has no view of two clusters")
	}
	one := kubetest.Start(t, &kubetest.Options{Name: "one"})
	two := kubetest.Start(t, &kubetest.Options{Name: "two"})
	createPod(t, one, "early")
	createPod(t, two, "early")
	createPod(t, two, "only-two")

	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := kubetest.WriteKubeconfig(kubeconfig, one); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	p, err := startReplica(ctx, dir, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the end of watershed's log:\n%s", p.Tail())
		}
	}()
	k := terminal{one.KubectlPath(), filepath.Join(dir, "fleet"), filepath.Join(dir, "cache")}
	if err := p.WriteKubeconfig(k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	shows := func(args []string, want ...string) error {
		o := k.run(ctx, args...)
		if got := rowsOf(o.stdout); o.code != 0 || !slices.Equal(got, want) {
			return fmt.Errorf("kubectl %s: %d %s\n%s\nwhich is %q, want %q", strings.Join(args, " "), o.code, o.stderr,
				o.stdout, got, want)
		}
		return nil
	}
	must := func(args string, want ...string) {
		t.Helper()
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := expect.Until(limited, func() error { return shows(words(args), want...) }); err != nil {
			t.Error(err)
		}
	}
	must("--context fleet get pods -A", "one/early")

	var out logBuffer
	var watching sync.WaitGroup
	watchCtx, stop := context.WithCancel(ctx)
	watching.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := k.command(watchCtx, "--context", "fleet", "get", "pods", "-A", "-w")
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // it is killed
	})
	defer watching.Wait()
	defer stop()
	saw := func(rows ...string) {
		t.Helper()
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err := expect.Until(limited, func() error {
			got := rowsOf(out.tail(maxBody))
			for _, row := range rows {
				if !slices.Contains(got, row) {
					return fmt.Errorf("the watch does not show %s but %q:\n%s", row, got, out.tail(4<<10))
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	saw("one/early")
	if err := kubetest.WriteKubeconfig(kubeconfig, one, two); err != nil {
		t.Fatal(err)
	}
	saw("one/early", "two/early", "two/only-two")
	createPod(t, two, "late")
	createPod(t, one, "late")
	saw("two/late", "one/late")
	must("--context fleet get pods -A", "one/early", "one/late", "two/early", "two/late", "two/only-two")
	must("--context fleet get pods -n default", "one/early", "one/late", "two/early", "two/late", "two/only-two")
	must("--context fleet get pods -A -l app=only-two", "two/only-two")
	if err := p.WriteKubeconfig(k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	// Each cluster also has its own view, without the column.
	for name, want := range map[string]int{"one": 2, "two": 3} {
		o := k.run(ctx, "--context", name, "get", "pods", "-A", "--no-headers")
		if n := strings.Count(o.stdout, "\n"); n != want || strings.Contains(o.stdout, "CLUSTER") {
			t.Errorf("%s has %d pods, want %d: %s%s", name, n, want, o.stdout, o.stderr)
		}
	}
}

func createPod(t *testing.T, c *kubetest.Cluster, name string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/" + name}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf returns the cluster and the name in each row of a table that has these columns.
// The cluster is the last column: others may contain spaces.
func rowsOf(table string) []string {
	var out []string
	name := -1
	for line := range strings.Lines(table) {
		cells := strings.Fields(line)
		if len(cells) > 0 && cells[len(cells)-1] == "CLUSTER" && slices.Contains(cells, "NAME") {
			name = slices.Index(cells, "NAME")
			continue
		}
		if name >= 0 && len(cells) > name {
			out = append(out, cells[len(cells)-1]+"/"+cells[name])
		}
	}
	return out
}
