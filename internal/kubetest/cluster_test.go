// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// slowStart is how long a start may take. Five seconds are usual.
const slowStart = 20 * time.Second

// TestCluster runs all tests that can share a cluster on one.
func TestCluster(t *testing.T) {
	begin := time.Now()
	c := kubetest.Start(t, &kubetest.Options{
		Users: []kubetest.User{
			{Name: "reader"},
			{Name: "chief:of/staff", Groups: []string{"visitors", "system:masters"}},
		},
		APIServerArgs: []string{"--watch-cache-sizes=configmaps#0"},
	})
	took := time.Since(begin)
	t.Logf("etcd and kube-apiserver started in %s", took.Round(10*time.Millisecond))
	if took > slowStart {
		t.Errorf("start took %s, more than %s", took, slowStart)
	}
	t.Run("access", func(t *testing.T) { testAccess(t, c) })
	t.Run("kubectl", func(t *testing.T) { testKubectl(t, c) })
	t.Run("truth", func(t *testing.T) { testTruth(t, c) })
	t.Run("proxy", func(t *testing.T) { testProxyWatch(t, c) })
	t.Run("compact", func(t *testing.T) { testCompact(t, c) })
	t.Run("expire", func(t *testing.T) { testExpire(t, c) })
	t.Run("etcd is killed", func(t *testing.T) { testKillEtcd(t, c) })
	t.Run("API server is stopped", func(t *testing.T) { testStopAPIServer(t, c) })
	t.Run("component dies", func(t *testing.T) { testDeath(t, c) })
}

func clientFor(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func testAccess(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	list := func(cfg *rest.Config, namespace string) error {
		_, err := clientFor(t, cfg).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	}
	cfg := c.Config()
	if cfg.Insecure || cfg.QPS >= 0 {
		t.Errorf("admin's config: insecure %t, QPS %v", cfg.Insecure, cfg.QPS)
	}
	if err := list(cfg, ""); err != nil {
		t.Errorf("admin: %v", err)
	}
	cfg.CAData = nil
	if err := list(cfg, ""); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client that does not know the authority: %v", err)
	}
	if err := list(c.UserConfig("chief:of/staff"), ""); err != nil {
		t.Errorf("user with a group: %v", err)
	}
	if err := list(c.UserConfig("nobody"), ""); !apierrors.IsUnauthorized(err) {
		t.Errorf("unknown user: %v, want Unauthorized", err)
	}

	reader := c.UserConfig("reader")
	if err := list(reader, "default"); !apierrors.IsForbidden(err) {
		t.Errorf("before the grant: %v, want Forbidden", err)
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}
	if err := c.Grant(ctx, "reader", "default", rule); err != nil {
		t.Fatal(err)
	}
	if err := list(reader, "default"); err != nil {
		t.Errorf("after the grant: %v", err)
	}
	if err := list(reader, "kube-system"); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: %v, want Forbidden", err)
	}
	if err := c.Grant(ctx, "reader", "", rule); err != nil {
		t.Fatal(err)
	}
	if err := list(reader, ""); err != nil {
		t.Errorf("after the grant for the cluster: %v", err)
	}
	if err := c.Revoke(ctx, "reader"); err != nil {
		t.Fatal(err)
	}
	expect.Soon(t, "the grants are revoked", func() bool {
		err := list(reader, "default")
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatalf("after the grants were revoked: %v, want Forbidden", err)
		}
		return err != nil
	})
}

func testKubectl(t *testing.T, c *kubetest.Cluster) {
	ctx := t.Context()
	out, err := c.Kubectl(ctx, "get", "namespaces", "-o", "name")
	if err != nil || !strings.Contains(out, "namespace/default\n") {
		t.Errorf("get namespaces: %q, %v", out, err)
	}
	_, err = c.Kubectl(ctx, "get", "pod", "not-there")
	if err == nil || !strings.Contains(err.Error(), `pods "not-there" not found`) {
		t.Errorf("get a pod that is not there: %v, want kubectl's words", err)
	}
	_, err = c.Kubectl(ctx, "--context", "reader@kubetest", "get", "pods")
	if err == nil || !strings.Contains(err.Error(), `User "reader" cannot list resource "pods"`) {
		t.Errorf("get pods as reader: %v, want Forbidden", err)
	}
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(ctx, "version"); err != nil ||
		strings.Count(out, "Version: "+set.APIServer.Version+"\n") != 2 {
		t.Errorf("version: %q, %v, want %s of client and server", out, err, set.APIServer.Version)
	}
}

// testKillEtcd checks that written data survives a kill of etcd, although it does not
// sync.
func testKillEtcd(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	maps := clientFor(t, c.Config()).CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kept-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := c.Etcd.PID()
	c.Etcd.Kill()
	if pid := c.Etcd.PID(); pid != 0 {
		t.Errorf("killed etcd has process id %d", pid)
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := maps.Get(short, made.Name, metav1.GetOptions{}); err == nil {
		t.Error("a read succeeded without etcd")
	}
	begin := time.Now()
	if err := c.Etcd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Etcd.Start(ctx); err == nil {
		t.Error("etcd was started twice")
	}
	if pid := c.Etcd.PID(); pid == 0 || pid == before {
		t.Errorf("etcd's process id is %d, was %d", pid, before)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd and the API server were back %s after etcd was started", time.Since(begin).Round(10*time.Millisecond))
	got, err := maps.Get(ctx, made.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != made.UID || got.ResourceVersion != made.ResourceVersion {
		t.Errorf("after the kill: uid %s at %s, want %s at %s", got.UID, got.ResourceVersion, made.UID,
			made.ResourceVersion)
	}
}

func testStopAPIServer(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := clientFor(t, c.Config())
	if err := c.APIServer.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("a stopped API server answered")
	}
	begin := time.Now()
	if err := c.APIServer.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("the API server was back after %s", time.Since(begin).Round(10*time.Millisecond))
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Errorf("the API server started again, same client: %v", err)
	}
	waited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := c.Wait(waited); err != nil {
		t.Errorf("deliberate ends count as deaths: %v", err)
	}
}

func testDeath(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stranger, err := os.FindProcess(c.APIServer.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Kill(); err != nil {
		t.Fatal(err)
	}
	err = c.Wait(ctx)
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended: signal: killed") {
		t.Errorf("the API server was killed by a stranger: %v", err)
	}
}

func TestCluster_severalAtOnce(t *testing.T) {
	skipUnlessBuilt(t)
	const n = 3
	begin := time.Now()
	clusters := make([]*kubetest.Cluster, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			c, err := kubetest.New(ctx, &kubetest.Options{Durable: i == 1})
			if err != nil {
				t.Error(err)
				return
			}
			clusters[i] = c
		})
	}
	all.Wait()
	t.Logf("%d clusters started at once in %s", n, time.Since(begin).Round(10*time.Millisecond))
	uids := map[string]bool{}
	for _, c := range clusters {
		if c == nil {
			continue
		}
		defer c.Close()
		ns, err := clientFor(t, c.Config()).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		uids[string(ns.UID)] = true
	}
	if len(uids) != n {
		t.Errorf("%d different default namespaces, want %d", len(uids), n)
	}
	if t.Failed() {
		return
	}
	for i, c := range clusters {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Etcd.PID()))
		if os.IsNotExist(err) {
			break // not Linux
		}
		if durable := !strings.Contains(string(line), "--unsafe-no-fsync"); err != nil || durable != (i == 1) {
			t.Errorf("cluster %d: durable is %t, %v", i, durable, err)
		}
	}
	clusters[0].Close()
	if _, err := os.Stat(clusters[0].Dir()); !os.IsNotExist(err) {
		t.Errorf("the folder of a closed cluster: %v", err)
	}
	if err := clusters[1].WaitReady(t.Context()); err != nil {
		t.Errorf("closing one cluster disturbed another: %v", err)
	}
}

func TestNew_saysWhyAComponentDidNotStart(t *testing.T) {
	skipUnlessBuilt(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := kubetest.New(ctx, &kubetest.Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended") ||
		!strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("error %v, want the component and its own words", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the caller's folder: %v", err)
	}
}

func TestNew_refusesNonsense(t *testing.T) {
	for _, o := range []kubetest.Options{
		{Nodes: -1},
		{Users: []kubetest.User{{}}},
		{Users: []kubetest.User{{Name: "a"}, {Name: "a"}}},
		{Users: []kubetest.User{{Name: "admin"}}},
	} {
		if _, err := kubetest.New(t.Context(), &o); err == nil || !strings.HasPrefix(err.Error(), "options: ") {
			t.Errorf("New(%+v) = %v, want an error about options", o, err)
		}
	}
}

func TestNew_notBuilt(t *testing.T) {
	t.Setenv("WATERSHED_CACHE", t.TempDir())
	_, err := kubetest.New(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "run make kube first") {
		t.Errorf("error %v, want a hint", err)
	}
}

// TestStart_notBuilt runs a test of this package without the binaries.
func TestStart_notBuilt(t *testing.T) {
	for _, test := range []struct {
		name, env, flag, want string
		fails                 bool
	}{
		{"skips", "", "-test.v", "--- SKIP: TestLoadPods", false},
		{"fails where they are required", "required", "-test.v", "--- FAIL: TestLoadPods", true},
		{"skips in short mode all the same", "required", "-test.short", "PASS", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestLoadPods$", test.flag)
			cmd.Env = append(os.Environ(), "WATERSHED_CACHE="+t.TempDir(), "WATERSHED_KUBE="+test.env)
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails || !strings.Contains(string(out), test.want) {
				t.Errorf("%v\n%s", err, out)
			}
			if test.flag == "-test.v" && !strings.Contains(string(out), "run make kube first") {
				t.Errorf("no hint in\n%s", out)
			}
		})
	}
}
