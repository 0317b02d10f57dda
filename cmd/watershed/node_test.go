// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// nodeModules returns the folder with Kubernetes' client for Node, which is installed
// once per machine into the cache, in the versions of the lock file.
func nodeModules(ctx context.Context, t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("testdata/node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := binaries.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	installed := filepath.Join(cache, "node", hex.EncodeToString(sum[:8]))
	modules := filepath.Join(installed, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules
	}
	if err := os.MkdirAll(filepath.Dir(installed), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(installed), "install-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS("testdata/node")); err != nil {
		t.Fatal(err)
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	// Another process may have been faster.
	if err := os.Rename(dir, installed); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	return modules
}

// installedNode returns the folder with Kubernetes' client for Node, or "" if Node is not
// installed.
func installedNode(ctx context.Context, t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is not installed: Kubernetes' client for Node is not tried", program)
			return ""
		}
	}
	return nodeModules(ctx, t)
}

// testNode lists and watches pods of the cluster through the server, with Kubernetes'
// client for Node, which uses OpenSSL. It uses the given kubeconfig.
func testNode(ctx context.Context, t *testing.T, k *kubetest.Cluster, kubeconfig string) {
	modules := installedNode(ctx, t)
	if modules == "" {
		t.Skip()
	}
	node := exec.CommandContext(ctx, "node", "testdata/node/client.js", kubeconfig)
	node.Env = append(os.Environ(), "NODE_PATH="+modules)
	var trouble strings.Builder
	node.Stderr = &trouble
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	var printed []string
	lines := bufio.NewScanner(out)
	until := func(want string) {
		t.Helper()
		for lines.Scan() {
			if printed = append(printed, lines.Text()); lines.Text() == want {
				return
			}
		}
		t.Errorf("the client has not printed %q, but %q and\n%s", want, printed, &trouble)
	}
	until("listed default/first")
	until("watching")
	createPod(ctx, t, k, "second")
	until("ADDED default/second")
	if _, err := k.Kubectl(ctx, "delete", "pod", "second", "--force", "--grace-period=0"); err != nil {
		t.Error(err)
	}
	until("DELETED default/second")
	if err := node.Wait(); err != nil {
		t.Errorf("the client ends with %v\n%s", err, &trouble)
	}
}

// nodeRounds is how many objects Node's client writes.
const nodeRounds = 20

// testNodeWrites lets Kubernetes' client for Node read and write config maps through a server
// that passes requests on, beside an informer, with a user's token. It must print the same as
// at the API server.
func testNodeWrites(ctx context.Context, t *testing.T, k *kubetest.Cluster, user string) {
	modules := installedNode(ctx, t)
	if modules == "" {
		t.Skip()
	}
	expect.NoError(t, k.Grant(ctx, user, "default", rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
		Verbs:     []string{"*"},
	}))
	s := &state.Dir{Path: filepath.Join(t.TempDir(), "state")}
	startServe(t, s, "--kubeconfig", k.Kubeconfig(), "--context", k.Name(), "--pass-through")
	run := func(kubeconfig string) string {
		node := exec.CommandContext(ctx, "node", "testdata/node/writer.js", kubeconfig, strconv.Itoa(nodeRounds))
		node.Env = append(os.Environ(), "NODE_PATH="+modules)
		out, err := node.CombinedOutput()
		if err != nil {
			t.Fatalf("the client ends with %v\n%s", err, out)
		}
		return string(out)
	}
	config, err := clientcmd.LoadFromFile(k.Kubeconfig())
	expect.NoError(t, err)
	config.CurrentContext = user + "@" + k.Name()
	direct := filepath.Join(t.TempDir(), "direct.yaml")
	expect.NoError(t, clientcmd.WriteToFile(*config, direct))
	want := run(direct)
	if n := strings.Count(want, "add created, update replaced, update patched, delete patched"); n != nodeRounds {
		t.Fatalf("at the API server %d objects have all events:\n%s", n, want)
	}
	expect.Equal(t, run(writeReplicaUser(t, s, k, t.TempDir(), user)), want)
}

func createPod(ctx context.Context, t *testing.T, k *kubetest.Cluster, name string) {
	t.Helper()
	if _, err := k.Kubectl(ctx, "run", name, "--image", "image"); err != nil {
		t.Fatal(err)
	}
}
