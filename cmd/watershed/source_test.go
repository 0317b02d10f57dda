// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/fleet"
)

// openSources opens the sources of these flags. They log to the returned output.
func openSources(t *testing.T, args ...string) (*sources, *output, error) {
	t.Helper()
	log := &output{}
	o, err := parseOptions(args...)
	if err != nil {
		return nil, log, err
	}
	s, err := o.sources.open(slog.New(slog.NewTextHandler(log, nil)))
	return s, log, err
}

// followSources follows the sources of these flags until their clusters are as wanted,
// and returns them by name.
func followSources(t *testing.T, wanted func(map[string]fleet.Entry) bool, args ...string) (map[string]fleet.Entry, *output) {
	t.Helper()
	s, log, err := openSources(t, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := map[string]fleet.Entry{}
	found := false
	err = s.join(slog.New(slog.NewTextHandler(log, nil))).Follow(ctx, func(entries []fleet.Entry) {
		if found {
			return
		}
		clear(last)
		for _, e := range entries {
			last[e.Name] = e
		}
		if found = wanted(last); found {
			cancel()
		}
	})
	if err != nil || !found {
		t.Fatalf("%q: error %v, clusters %v, log:\n%s", args, err, slices.Sorted(maps.Keys(last)), log)
	}
	return last, log
}

// named returns a condition for followSources: the clusters have these names.
func named(names ...string) func(map[string]fleet.Entry) bool {
	return func(m map[string]fleet.Entry) bool { return slices.Equal(slices.Sorted(maps.Keys(m)), names) }
}

// writeFolder returns a folder with a kubeconfig file for each of these clusters.
func writeFolder(t *testing.T, clusters ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range clusters {
		if err := os.Rename(writeKubeconfig(t, map[string]string{"only": ""}), filepath.Join(dir, name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSources has every flag that selects a source, alone and together with others.
func TestSources(t *testing.T) {
	config := writeKubeconfig(t, map[string]string{"a": "", "b": ""})
	one, two := writeFolder(t, "c"), writeFolder(t, "d")
	hub := writeKubeconfig(t, map[string]string{"hub": ""})
	t.Setenv("KUBECONFIG", config)
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	fromHub := []string{"--hub-kubeconfig", hub, "--hub-context", "hub"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "kubeconfig " + config},
		{[]string{"--kubeconfig", hub}, "kubeconfig " + hub},
		{[]string{"--context", "a"}, "kubeconfig " + config},
		{[]string{"--kubeconfig-dir", one}, "folder " + one},
		{[]string{"--kubeconfig-dir", one, "--kubeconfig-dir", two}, "folder " + one + ", folder " + two},
		{[]string{"--kubeconfig-dir", one, "--context", "a"}, "kubeconfig " + config + ", folder " + one},
		{[]string{"--in-cluster"}, "in-cluster in-cluster"},
		{[]string{"--in-cluster=prod"}, "in-cluster prod"},
		{append([]string{"--cluster-api"}, fromHub...), "Cluster API on hub"},
		{append([]string{"--cluster-profiles", "--cluster-profile-consumer", "me"}, fromHub...), "ClusterProfiles on hub"},
		{[]string{"--cluster-api", "--hub-context", "b"}, "Cluster API on b"},
		{
			append([]string{"--cluster-profiles", "--cluster-profile-consumer", "me", "--cluster-api", "--in-cluster", "--kubeconfig-dir", one, "--kubeconfig", config}, fromHub...),
			"kubeconfig " + config + ", folder " + one + ", in-cluster in-cluster, Cluster API on hub, ClusterProfiles on hub",
		},
	} {
		s, _, err := openSources(t, c.args...)
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if got := s.join(nil).String(); got != c.want {
			t.Errorf("%q: sources %q, want %q", c.args, got, c.want)
		}
		if got, want := s.kubeconfig != nil, strings.HasPrefix(c.want, "kubeconfig"); got != want {
			t.Errorf("%q: contexts are mirrored: %t, want %t", c.args, got, want)
		}
	}
}

func TestSources_clusters(t *testing.T) {
	config := writeKubeconfig(t, map[string]string{"a": "", "b": "", "c": ""})
	t.Setenv("KUBECONFIG", config)
	dir := writeFolder(t, "b", "d")
	followSources(t, named("a", "b", "c"))
	followSources(t, named("a", "c"), "--context", "c", "--context", "a")
	followSources(t, named("b", "d"), "--kubeconfig-dir", dir)
	got, log := followSources(t, named("a", "b", "d"), "--kubeconfig-dir", dir, "--context", "a", "--context", "b")
	if token := got["b"].Config.BearerToken; token != "secret of b" {
		t.Errorf("cluster b has the token %q of the folder, want that of the context", token)
	}
	for _, want := range []string{"cluster left out", "cluster=b", "source=\"folder " + dir, "used=\"kubeconfig " + config} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}

// TestSources_inCluster has no service account: the error is logged with its file, and
// the other sources are not delayed for long.
func TestSources_inCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err == nil {
		t.Skip("the test runs in a pod")
	}
	_, log := followSources(t, named("a"), "--in-cluster", "--kubeconfig-dir", writeFolder(t, "a"))
	for _, want := range []string{"cannot read clusters", `source="in-cluster in-cluster"`, "/var/run/secrets/kubernetes.io/serviceaccount/token"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}

// TestSources_errors checks that an error names the flag and the solution.
func TestSources_errors(t *testing.T) {
	config := writeKubeconfig(t, map[string]string{"a": ""})
	t.Setenv("KUBECONFIG", config)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--kubeconfig-dir", "/nonexistent/dir"}, []string{"--kubeconfig-dir", "/nonexistent/dir", "no such file", "--kubeconfig"}},
		{[]string{"--kubeconfig-dir", config}, []string{"--kubeconfig-dir", config, "--kubeconfig"}},
		{[]string{"--in-cluster"}, []string{"--in-cluster", "KUBERNETES_SERVICE_HOST", "pod"}},
		{[]string{"--in-cluster=a/b"}, []string{"--in-cluster", `"a/b"`, "slash"}},
		{[]string{"--cluster-api", "--hub-context", "nosuch"}, []string{"hub", `"nosuch"`, "--hub-context", "--hub-kubeconfig"}},
		{[]string{"--cluster-api", "--hub-kubeconfig", "/nonexistent/config"}, []string{"hub", "/nonexistent/config", "--hub-kubeconfig"}},
		{[]string{"--hub-kubeconfig", config}, []string{"--hub-kubeconfig", "--cluster-api", "--cluster-profiles"}},
		{[]string{"--hub-context", "a"}, []string{"--hub-context", "--cluster-api"}},
		{[]string{"--hub-namespace", "a", "--in-cluster"}, []string{"--hub-namespace", "--cluster-api"}},
		{[]string{"--cluster-profiles"}, []string{"--cluster-profiles", "credentials", "--cluster-profile-consumer", "--cluster-profile-provider-file"}},
		{[]string{"--cluster-profile-consumer", "me", "--cluster-api"}, []string{"--cluster-profile-consumer", "--cluster-profiles"}},
		{[]string{"--cluster-profile-provider-file", config}, []string{"--cluster-profile-provider-file", "--cluster-profiles"}},
		{[]string{"--cluster-profiles", "--cluster-profile-provider-file", "/nonexistent/file"}, []string{"--cluster-profile-provider-file", "/nonexistent/file"}},
		{[]string{"--kubeconfig", "/nonexistent/config"}, []string{"/nonexistent/config", "--kubeconfig"}},
		{[]string{"--context", "nosuch", "--cluster-api"}, []string{`"nosuch"`, config, "it has a"}},
	} {
		_, _, err := openSources(t, c.args...)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want one with %q", c.args, err, want)
			}
		}
	}
}

// TestServe_kubeconfigDir serves the clusters of a folder. A context of the same name
// that is not mirrored has no effect on the printed kubeconfig.
func TestServe_kubeconfigDir(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t, map[string]string{"a": "shop", "b": "shop", "c": "shop"}))
	dir := writeFolder(t, "a", "b")
	for _, c := range []struct {
		args []string
		want map[string]string // namespaces by cluster
	}{
		{[]string{"--kubeconfig-dir", dir}, map[string]string{"a": "", "b": ""}},
		{[]string{"--kubeconfig-dir", dir, "--context", "a"}, map[string]string{"a": "shop", "b": ""}},
	} {
		s := &state{dir: t.TempDir()}
		_, stop := startServe(t, s, c.args...)
		k := printedKubeconfig(t, s)
		got := map[string]string{}
		for _, context := range k.Contexts {
			if _, name, ok := strings.Cut(k.Clusters[context.Cluster].Server, "/clusters/"); ok {
				got[name] = context.Namespace
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%q: namespaces %v, want %v", c.args, got, c.want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
