// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// helmVariable is the name of the environment variable that makes a missing helm an error.
const helmVariable = "WATERSHED_HELM"

// helmPath returns the path of helm, which make helm builds.
func helmPath(t *testing.T) string {
	t.Helper()
	set, err := binaries.Load()
	expect.NoError(t, err)
	if _, err := os.Stat(set.Helm.Path); err != nil {
		if os.Getenv(helmVariable) == "required" {
			t.Fatal(err)
		}
		t.Skip("helm is not built: run make helm")
	}
	return set.Helm.Path
}

// writeChart writes a chart with one ConfigMap.
func writeChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	expect.NoError(t, os.Mkdir(filepath.Join(dir, "templates"), 0o755))
	for name, content := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: chart\nversion: 1.2.3\n",
		"values.yaml": "color: blue\n",
		"templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: colors}\ndata: {color: '{{ " +
			".Values.color }}'}\n",
	} {
		expect.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// TestHelm installs a release in a real cluster, and reads it through the program. A release
// is a secret, so only users that may read secrets can read it.
func TestHelm(t *testing.T) {
	helm := helmPath(t)
	k := kubetest.Start(t, &kubetest.Options{Name: "real", Users: []kubetest.User{{Name: "jane"}, {Name: "joe"}}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	read := []string{"get", "list", "watch"}
	expect.NoError(t, k.Grant(ctx, "jane", "", rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"secrets", "configmaps"},
		Verbs:     read,
	}))
	expect.NoError(t, k.Grant(ctx, "joe", "", rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
		Verbs:     read,
	}))
	run := func(kubeconfig string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, helm, append([]string{"--kubeconfig", kubeconfig}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "HELM_CACHE_HOME=", "HELM_CONFIG_HOME=", "HELM_DATA_HOME=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(k.Kubeconfig(), "install", "release", writeChart(t), "--set", "color=red"); err != nil {
		t.Fatalf("helm install: %v: %s", err, out)
	}

	dir := t.TempDir()
	s := &state.Dir{Path: filepath.Join(dir, "state")}
	startServe(t, s, "--kubeconfig", k.Kubeconfig(), "--context", k.Name(), "--resources", "*,secrets")
	config := func(user string) string { return writeReplicaUser(t, s, k, dir, user) }
	jane, joe := config("jane"), config("joe")
	for _, args := range [][]string{
		{"list", "--all-namespaces"}, {"list", "--all-namespaces", "--output", "json"}, {"status", "release"},
		{"status", "release", "--output", "json"},
		{"get", "values", "release"}, {"get", "all", "release"}, {"history", "release"},
	} {
		want, err := run(k.Kubeconfig(), args...)
		if err != nil || want == "" {
			t.Fatalf("helm %s at the cluster: %v: %s", args, err, want)
		}
		expect.Eventually(t, time.Minute, func() error { // the cluster may not have synced
			if got, err := run(jane, args...); err != nil || got != want {
				return fmt.Errorf("helm %s: %w: %s, want %s", args, err, got, want)
			}
			return nil
		})
		if out, err := run(joe, args...); err == nil || !strings.Contains(out, `User "joe" cannot`) {
			t.Errorf("helm %s of a user that may not read secrets: %v: %s", args, err, out)
		}
	}
}

// writeReplicaUser writes a kubeconfig for the server with the token of a user, and returns
// its path.
func writeReplicaUser(t *testing.T, s *state.Dir, k *kubetest.Cluster, dir, user string) string {
	t.Helper()
	config := printedKubeconfig(t, s)
	name := contextPrefix + k.Name()
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{user: {Token: k.UserConfig(user).BearerToken}}
	config.Contexts = map[string]*clientcmdapi.Context{
		name: {Cluster: config.Contexts[name].Cluster, AuthInfo: user, Namespace: "default"},
	}
	config.CurrentContext = name
	path := filepath.Join(dir, user+".yaml")
	expect.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
