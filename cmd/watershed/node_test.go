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
	"strings"
	"testing"

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

func createPod(ctx context.Context, t *testing.T, k *kubetest.Cluster, name string) {
	t.Helper()
	if _, err := k.Kubectl(ctx, "run", name, "--image", "image"); err != nil {
		t.Fatal(err)
	}
}
