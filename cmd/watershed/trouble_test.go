// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// trouble is a kind of trouble of the cluster one, made with a real API server.
type trouble struct {
	// reason is what status reports, and alert what Prometheus raises.
	reason, alert string
	// resources are mirrored.
	resources string
	// config returns how the cluster is reached.
	config func(t *testing.T, k *kubetest.Cluster) *rest.Config
	// begin makes the trouble after the cluster has synced, nil if it is there before.
	begin func(t *testing.T, k *kubetest.Cluster)
	// args returns more flags of serve and of check.
	args func(t *testing.T, k *kubetest.Cluster) []string
}

func through(f front) func(*testing.T, *kubetest.Cluster) *rest.Config {
	return func(t *testing.T, k *kubetest.Cluster) *rest.Config { return f.start(t, k.UserConfig("reader")) }
}

// straight returns access for a user without a proxy that ends TLS.
func straight(user string) func(*testing.T, *kubetest.Cluster) *rest.Config {
	return func(t *testing.T, k *kubetest.Cluster) *rest.Config { return k.Proxy(t).Config(k.UserConfig(user)) }
}

// breaks is true while the watches of the kind flapping break.
var breaks atomic.Bool

// troubles are the ten kinds.
var troubles = map[string]trouble{
	"unreachable": {reason: "Unreachable", alert: "WatershedClusterUnreachable",
		config: func(t *testing.T, k *kubetest.Cluster) *rest.Config {
			p := k.Proxy(t)
			p.Down()
			return p.Config(k.Config())
		}},
	"unauthorized": {reason: "Unauthorized", alert: "WatershedCredentialsRefused",
		config: func(t *testing.T, k *kubetest.Cluster) *rest.Config {
			cfg := k.Proxy(t).Config(k.Config())
			cfg.BearerToken = "expired"
			return cfg
		}},
	"forbidden-type": {reason: "Forbidden", alert: "WatershedResourceForbidden", config: straight("narrow")},
	"expired-certificate": {
		reason: "CertificateExpired", alert: "WatershedCertificateRefused", config: through(front{expired: true}),
	},
	"clock-skew": {reason: fleet.ClockSkew, alert: "WatershedClockSkew",
		config: through(front{change: func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(2*time.Hour).UTC().Format(http.TimeFormat))
			return nil
		}})},
	"crd-removed": {
		reason: fleet.TypeRemoved, alert: "WatershedTypeRemoved", config: straight("reader"),
		resources: "pods,configmaps,wells.example.com",
		begin: func(t *testing.T, k *kubetest.Cluster) {
			if out, err := k.Kubectl(t.Context(), "delete", "crd", "wells.example.com"); err != nil {
				t.Fatal(out, err)
			}
		},
	},
	"slow": {reason: fleet.Slow, alert: "WatershedSlow", config: through(front{delay: 2200 * time.Millisecond})},
	"flapping": {
		reason: fleet.Flapping,
		alert:  "WatershedFlapping",
		config: through(front{watches: 400 * time.Millisecond, breaks: &breaks}),
	},
	"name-taken": {reason: fleet.NameTaken, alert: "WatershedNameTaken", config: straight("reader"),
		args: func(t *testing.T, k *kubetest.Cluster) []string {
			dir := t.TempDir()
			commandtest.WriteConfigs(t, filepath.Join(dir, "one.yaml"),
				map[string]*rest.Config{"any": k.Proxy(t).Config(k.Config())})
			return []string{"--kubeconfig-dir", dir}
		}},
	"cluster-is-newer": {reason: fleet.ClusterIsNewer, alert: "WatershedClusterIsNewer",
		config: through(front{change: func(r *http.Response) error {
			if r.Request.URL.Path != "/version" {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = regexp.MustCompile(`"gitVersion": "[^"]*"`).ReplaceAll(body, []byte(`"gitVersion": "v1.99.0"`))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
			return nil
		}})},
}

// TestTroubles compares what check and status print about ten kinds of trouble with the
// files in testdata/trouble. Every problem has a line that says what to do, and raises its
// alert in a real Prometheus.
func TestTroubles(t *testing.T) {
	k := kubetest.Start(t, &kubetest.Options{Name: "real", Users: []kubetest.User{{Name: "reader"}, {Name: "narrow"}}})
	reads := func(resources ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: resources},
		}
	}
	reviews := rbacv1.PolicyRule{
		Verbs:     []string{"create"},
		APIGroups: []string{"*"},
		Resources: []string{"tokenreviews", "subjectaccessreviews"},
	}
	expect.NoError(t, k.Grant(t.Context(), "reader", "", append(reads("*"), reviews)...))
	expect.NoError(t, k.Grant(t.Context(), "narrow", "",
		append(reads("pods", "namespaces", "customresourcedefinitions", "apiservices"), reviews)...))
	if out, err := k.KubectlInput(t.Context(), definition, "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := k.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/wells.example.com",
		"--timeout=30s"); err != nil {
		t.Fatal(out, err)
	}
	breaks.Store(true)
	t.Run("kinds", func(t *testing.T) {
		for name, kind := range troubles {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testTrouble(t, k, name, kind)
			})
		}
	})
}

func testTrouble(t *testing.T, k *kubetest.Cluster, name string, kind trouble) {
	resources := kind.resources
	if resources == "" {
		resources = "pods,configmaps"
	}
	args := []string{
		"--kubeconfig", commandtest.WriteConfigs(t, filepath.Join(t.TempDir(), "config"),
			map[string]*rest.Config{"one": kind.config(t, k)}),
		"--resources", resources,
	}
	if kind.args != nil {
		args = append(args, kind.args(t, k)...)
	}
	s := &state.Dir{Path: t.TempDir()}
	log, stop := startServe(t, s, append([]string{"--metrics-listen", "127.0.0.1:0"}, args...)...)
	if kind.begin != nil {
		awaitCluster(t, s, func(c document.Cluster) bool { return c.State == "live" && c.Synced > 2 })
		kind.begin(t, k)
	}
	awaitCluster(t, s, func(c document.Cluster) bool {
		settled := c.State == "live" || c.State == "stale" || c.State == "connecting" && c.Error != ""
		return settled && slices.ContainsFunc(c.Problems, func(p fleet.Problem) bool { return p.Reason == kind.reason })
	})
	// Between its interruptions a cluster that flaps is live.
	status := ""
	if kind.reason == fleet.Flapping {
		breaks.Store(false)
	}
	expect.Eventually(t, 30*time.Second, func() (err error) {
		if status, err = command(t.Context(), "status", "--state-dir", s.Path); err == nil &&
			kind.reason == fleet.Flapping && !strings.Contains(status, " live ") {
			err = errors.New(status)
		}
		return err
	})
	if _, err := exec.LookPath("prometheus"); err == nil || os.Getenv(prometheusVariable) == "required" {
		startPrometheus(t, metricsAddress(t, log)).raises(t, kind.alert, "cluster", "one")
	}
	expect.NoError(t, stop())
	golden(t, name+".status", status)
	if kind.reason == fleet.Flapping {
		breaks.Store(true)
	}
	check, err := command(t.Context(), append([]string{"check", "--observe", "1s"}, args...)...)
	if failed := strings.Contains(check,
		"FAIL"); failed != (err != nil && strings.HasPrefix(err.Error(), "checks failed")) {
		t.Errorf("check returns %v for\n%s", err, check)
	}
	golden(t, name+".check", check)
	for _, text := range []string{status, check} {
		if !strings.Contains(text, "do: ") {
			t.Errorf("no line says what to do:\n%s", text)
		}
	}
}

// awaitCluster waits until the status of the cluster one is as wanted.
func awaitCluster(t *testing.T, s *state.Dir, ok func(document.Cluster) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := expect.Until(ctx, func() error {
		document, err := readStatus(ctx, s)
		if err != nil {
			return err
		}
		for _, c := range document.Clusters {
			if c.Name == "one" && ok(c) {
				return nil
			}
		}
		return fmt.Errorf("%+v", document)
	})
	expect.NoError(t, err)
}

// masks replace what differs from run to run.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`/[\w/.-]*/(config|\d{3})\b`), "PATH"},
	{regexp.MustCompile(`v1\.[0-8]\d*\.\d+[^\s,;]*`), "VERSION"},
	{regexp.MustCompile(`(for|took|after|differs by) [\d.]+[a-zµ]+(\d+[a-z]+)?\b`), "$1 DURATION"},
	{regexp.MustCompile(`\b(1h59m5\ds|2h0m0s)\b`), "2h0m0s"},
	{regexp.MustCompile(`broke \d+ times`), "broke N times"},
	// The reflector reads the state with a list or a stream, in turns.
	{
		regexp.MustCompile(`(stream: watch|list: list) (.*) cannot (watch|list) resource`),
		"list: list $2 cannot list resource",
	},
	{regexp.MustCompile(`\d+ objects? in [\d.]+[KMG]?i?`), "N objects in SIZE"},
	{regexp.MustCompile(`process: [\d.]+[KMG]?i?`), "process: SIZE"},
	// The columns OBJECTS, MEMORY, READERS, HEARD and STALE of the table.
	{regexp.MustCompile(`(?m)^(one +\S+ +\S+ +\d+/\d+) .*?(\S+( \(\+\d+\))?)$`), "$1 … $2"},
	{regexp.MustCompile(` {3,}`), "   "},
}

// golden compares an output with a file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.with)
	}
	path := filepath.Join("testdata", "trouble", name+".txt")
	if *update {
		expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	expect.NoError(t, err)
	if text != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, text, want)
	}
}
