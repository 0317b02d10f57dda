// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings_test

import (
	"os"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
)

// TestSources has every flag that selects a source, alone and together with others.
func TestSources(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"a": "", "b": ""})
	one, two := commandtest.WriteKubeconfigs(t, "c"), commandtest.WriteKubeconfigs(t, "d")
	hub := commandtest.WriteKubeconfig(t, map[string]string{"hub": ""})
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
		{[]string{"--kubeconfig-dir", one}, "directory " + one},
		{[]string{"--kubeconfig-dir", one, "--kubeconfig-dir", two}, "directory " + one + ", directory " + two},
		{[]string{"--kubeconfig-dir", one, "--context", "a"}, "kubeconfig " + config + ", directory " + one},
		{[]string{"--in-cluster"}, "in-cluster in-cluster"},
		{[]string{"--in-cluster=prod"}, "in-cluster prod"},
		{append([]string{"--cluster-api"}, fromHub...), "Cluster API on hub"},
		{append([]string{"--cluster-profiles", "--cluster-profile-consumer", "me"}, fromHub...),
			"ClusterProfiles on hub"},
		{[]string{"--cluster-api", "--hub-context", "b"}, "Cluster API on b"},
		{
			append([]string{"--cluster-profiles", "--cluster-profile-consumer", "me", "--cluster-api", "--in-cluster",
				"--kubeconfig-dir", one, "--kubeconfig", config}, fromHub...),
			"kubeconfig " + config + ", directory " + one + ", in-cluster in-cluster, Cluster API on hub, " +
				"ClusterProfiles on hub",
		},
	} {
		s, _, err := commandtest.OpenSources(t, c.args...)
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if got := s.Join(nil).String(); got != c.want {
			t.Errorf("%q: sources %q, want %q", c.args, got, c.want)
		}
		if got, want := s.Kubeconfig != nil, strings.HasPrefix(c.want, "kubeconfig"); got != want {
			t.Errorf("%q: contexts are mirrored: %t, want %t", c.args, got, want)
		}
	}
}

func TestSources_clusters(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"a": "", "b": "", "c": ""})
	t.Setenv("KUBECONFIG", config)
	dir := commandtest.WriteKubeconfigs(t, "b", "d")
	commandtest.FollowSources(t, commandtest.Named("a", "b", "c"))
	commandtest.FollowSources(t, commandtest.Named("a", "c"), "--context", "c", "--context", "a")
	commandtest.FollowSources(t, commandtest.Named("b", "d"), "--kubeconfig-dir", dir)
	got, log := commandtest.FollowSources(t, commandtest.Named("a", "b", "d"), "--kubeconfig-dir", dir, "--context",
		"a", "--context", "b")
	if token := got["b"].Config.BearerToken; token != "secret of b" {
		t.Errorf("cluster b has the token %q of the folder, want that of the context", token)
	}
	for _, want := range []string{"cluster left out", "cluster=b", "source=\"directory " + dir,
		"used=\"kubeconfig " + config} {
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
	_, log := commandtest.FollowSources(t, commandtest.Named("a"), "--in-cluster", "--kubeconfig-dir",
		commandtest.WriteKubeconfigs(t, "a"))
	for _, want := range []string{"cannot read clusters", `source="in-cluster in-cluster"`,
		"/var/run/secrets/kubernetes.io/serviceaccount/token"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}

// TestSources_errors checks that an error names the flag and the solution.
func TestSources_errors(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"a": ""})
	t.Setenv("KUBECONFIG", config)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--kubeconfig-dir", "/nonexistent/dir"},
			[]string{"--kubeconfig-dir", "/nonexistent/dir", "no such file", "--kubeconfig"}},
		{[]string{"--kubeconfig-dir", config}, []string{"--kubeconfig-dir", config, "--kubeconfig"}},
		{[]string{"--in-cluster"}, []string{"--in-cluster", "KUBERNETES_SERVICE_HOST", "pod"}},
		{[]string{"--in-cluster=a/b"}, []string{"--in-cluster", `"a/b"`, "slash"}},
		{[]string{"--cluster-api", "--hub-context", "nosuch"},
			[]string{"hub", `"nosuch"`, "--hub-context", "--hub-kubeconfig"}},
		{[]string{"--cluster-api", "--hub-kubeconfig", "/nonexistent/config"},
			[]string{"hub", "/nonexistent/config", "--hub-kubeconfig"}},
		{[]string{"--hub-kubeconfig", config}, []string{"--hub-kubeconfig", "--cluster-api", "--cluster-profiles"}},
		{[]string{"--hub-context", "a"}, []string{"--hub-context", "--cluster-api"}},
		{[]string{"--hub-namespace", "a", "--in-cluster"}, []string{"--hub-namespace", "--cluster-api"}},
		{[]string{"--cluster-profiles"}, []string{"--cluster-profiles", "credentials", "--cluster-profile-consumer",
			"--cluster-profile-provider-file"}},
		{[]string{"--cluster-profile-consumer", "me", "--cluster-api"},
			[]string{"--cluster-profile-consumer", "--cluster-profiles"}},
		{[]string{"--cluster-profile-provider-file", config},
			[]string{"--cluster-profile-provider-file", "--cluster-profiles"}},
		{[]string{"--cluster-profiles", "--cluster-profile-provider-file", "/nonexistent/file"},
			[]string{"--cluster-profile-provider-file", "/nonexistent/file"}},
		{[]string{"--kubeconfig", "/nonexistent/config"}, []string{"/nonexistent/config", "--kubeconfig"}},
		{[]string{"--context", "nosuch", "--cluster-api"}, []string{`"nosuch"`, config, "it has a"}},
	} {
		_, _, err := commandtest.OpenSources(t, c.args...)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want one with %q", c.args, err, want)
			}
		}
	}
}
