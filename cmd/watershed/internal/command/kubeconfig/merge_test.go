// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// one returns a kubeconfig with one context, whose entries have the same name.
func one(name, server, token string) *clientcmdapi.Config {
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: server}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return k
}

var testTarget = &apiclient.Target{URL: "https://replica.example:7443"}

func TestMerge_rules(t *testing.T) {
	const ours = "https://replica.example:7443/clusters/a"
	for _, c := range []struct {
		name     string
		base     *clientcmdapi.Config
		change   func(*clientcmdapi.Config)
		conflict string // "" if there is none
	}{
		{"nothing yet", clientcmdapi.NewConfig(), nil, ""},
		{"other entries", one("b", "https://b.example", "x"), nil, ""},
		{"an earlier run", one("a", ours, "old"), nil, ""},
		{"another cluster", one("a", "https://a.example", "x"), nil, `context "a", cluster "a", user "a"`},
		{"another path of the host", one("a", "https://replica.example:7443/k8s/clusters/a", "x"), nil, `cluster "a"`},
		{"another port", one("a", "https://replica.example/clusters/a", "x"), nil, `cluster "a"`},
		{"a user that others have too", one("a", ours, "old"), func(k *clientcmdapi.Config) {
			k.Clusters["b"] = &clientcmdapi.Cluster{Server: "https://b.example"}
			k.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "a"}
		}, `user "a" would`},
		{"such a user with the same content", one("a", ours, "new"), func(k *clientcmdapi.Config) {
			k.Clusters["b"] = &clientcmdapi.Cluster{Server: "https://b.example"}
			k.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "a"}
		}, ""},
		{"a user without contexts", one("a", ours, "old"), func(k *clientcmdapi.Config) { delete(k.Contexts, "a") },
			`user "a" would`},
		{"a context without its cluster", one("a", ours, "old"),
			func(k *clientcmdapi.Config) { delete(k.Clusters, "a") }, `context "a", user "a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.base)
			}
			before := c.base.DeepCopy()
			err := mergeKubeconfig(c.base, one("a", ours, "new"), testTarget.Owns)
			if c.conflict != "" {
				if err == nil || !strings.Contains(err.Error(), c.conflict) || !cmp.Equal(before, c.base) {
					t.Errorf("error %v, want one with %s, and nothing changed", err, c.conflict)
				}
				return
			}
			if err != nil || c.base.AuthInfos["a"].Token != "new" || c.base.Clusters["a"].Server != ours {
				t.Errorf("error %v, kubeconfig %+v", err, c.base)
			}
			for name, cluster := range before.Clusters {
				if name != "a" && !cmp.Equal(cluster, c.base.Clusters[name]) {
					t.Errorf("cluster %s has changed", name)
				}
			}
			want := before.CurrentContext
			if want == "" {
				want = "a"
			}
			if c.base.CurrentContext != want {
				t.Errorf("the current context is %q", c.base.CurrentContext)
			}
		})
	}
}

// TestMerge_listsFewConflicts checks that an error about many entries stays readable.
func TestMerge_listsFewConflicts(t *testing.T) {
	base, added := clientcmdapi.NewConfig(), clientcmdapi.NewConfig()
	for i := range 100 {
		name := fmt.Sprint(i)
		base.Contexts[name], added.Contexts[name] = &clientcmdapi.Context{}, &clientcmdapi.Context{}
	}
	if err := mergeKubeconfig(base, added, testTarget.Owns); err == nil || len(err.Error()) > 300 ||
		!strings.Contains(err.Error(), "and 95 more") {
		t.Error(err)
	}
}

// fileConfig reads a kubeconfig file without resolving its paths.
func fileConfig(t *testing.T, path string) *clientcmdapi.Config {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return load(t, string(text))
}

// folder returns the names of the files in a folder.
func folder(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestWrite writes the kubeconfig of a server to new and existing files.
func TestWrite(t *testing.T) {
	s := &state.Dir{Path: t.TempDir()}
	_, end := commandtest.Begin(t, s, commandtest.Clusters("eu", "us"))
	write := func(path string, more ...string) error {
		t.Helper()
		out, _, err := run(t, append([]string{"--state-dir", s.Path, "--write", path}, more...)...)
		if err == nil && (!strings.Contains(out, "3 contexts") || strings.Contains(out, commandtest.OwnerToken(t, s))) {
			t.Errorf("it prints %q", out)
		}
		if err != nil && out != "" {
			t.Errorf("it fails with %v, and prints %q", err, out)
		}
		return err
	}
	ours := []string{"watershed-eu", "watershed-fleet", "watershed-us"}
	contexts := func(path string) []string { return slices.Sorted(maps.Keys(fileConfig(t, path).Contexts)) }

	path := filepath.Join(t.TempDir(), "new", "replica.yaml")
	for range 2 { // the second time it replaces its own entries
		if err := write(path); err != nil || !slices.Equal(contexts(path), ours) {
			t.Fatalf("a new file: %v, contexts %v", err, contexts(path))
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if files := folder(t, filepath.Dir(path)); len(files) != 1 {
		t.Errorf("files are left behind: %v", files)
	}

	// The user's own file, behind a symbolic link and readable by others.
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "config")
	if err := os.WriteFile(real, []byte(commandtest.UserConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	before := fileConfig(t, real)
	if err := write(link); err == nil || !strings.Contains(err.Error(), "--merge") ||
		!cmp.Equal(before, fileConfig(t, real)) {
		t.Errorf("without --merge, a file with other entries: %v", err)
	}
	for range 2 {
		if err := write(link, "--merge"); err != nil {
			t.Fatal(err)
		}
	}
	after := fileConfig(t, link)
	for name, context := range before.Contexts {
		if !cmp.Equal(context, after.Contexts[name]) {
			t.Errorf("context %q has changed", name)
		}
	}
	if diff := cmp.Diff(before.AuthInfos["files"], after.AuthInfos["files"]); diff != "" {
		t.Errorf("a relative path has changed:\n%s", diff)
	}
	if len(after.Contexts) != len(before.Contexts)+3 || after.CurrentContext != "token" {
		t.Errorf("%d contexts, the current one is %q", len(after.Contexts), after.CurrentContext)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced by a file")
	}
	if info, err := os.Stat(link); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	// Entries of the user are not replaced.
	if err := os.WriteFile(real, []byte(strings.ReplaceAll(commandtest.UserConfig, "name: data,", "name: eu,")),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(link, "--merge", "--prefix", ""); err == nil || !strings.Contains(err.Error(), `context "eu"`) ||
		!strings.Contains(err.Error(), "--prefix") {
		t.Errorf("a context of the user has the same name: %v", err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestWrite_failsWithoutDamage checks that a file stays as it is if it cannot be written.
func TestWrite_failsWithoutDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	for content, want := range map[string]string{
		"users:\n- name: a\n  user: {token: *hunter2}\n": "not a kubeconfig",
		commandtest.UserConfig:                           "another program is writing it",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if content == commandtest.UserConfig {
			if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := writeKubeconfigFile(path, one("a", "https://a", ""), true, testTarget.Owns)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != content {
			t.Errorf("the file has changed: %v", err)
		}
		_ = os.Remove(path + ".lock")
		if files := folder(t, dir); len(files) != 1 {
			t.Errorf("files are left behind: %v", files)
		}
	}
}

// TestWrite_isAtomic reads a file while it is written: it always has a complete content.
func TestWrite_isAtomic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	k := one("a", testTarget.URL+"/clusters/a", strings.Repeat("x", 1<<17))
	write := func() {
		if _, err := writeKubeconfigFile(path, k, false, testTarget.Owns); err != nil {
			t.Error(err)
		}
	}
	write()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			write()
		}
	}()
	for reads := 0; ; reads++ {
		select {
		case <-done:
			if reads == 0 {
				t.Error("nothing was read")
			}
			return
		default:
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) < 1<<17 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	}
}

// TestMerge_prints merges with the user's kubeconfig, whose paths become absolute.
func TestMerge_prints(t *testing.T) {
	path := commandtest.WriteUserConfig(t)
	s := &state.Dir{Path: t.TempDir()}
	_, end := commandtest.BeginAs(t, s, state.Server{Kubeconfig: []string{path}}, commandtest.Clusters("token"))
	text, _, err := run(t, "--state-dir", s.Path, "--merge")
	if err != nil {
		t.Fatal(err)
	}
	k := load(t, text)
	if k.Contexts["oidc"] == nil || k.Contexts["watershed-token"] == nil || k.CurrentContext != "token" ||
		!filepath.IsAbs(k.AuthInfos["files"].ClientCertificate) {
		t.Errorf("merged:\n%s", text)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
