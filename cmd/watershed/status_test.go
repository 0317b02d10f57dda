// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/build"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// startSimulated serves simulated clusters, and one that does not respond, and returns when
// those that respond are live.
func startSimulated(t *testing.T, clusters int, args ...string) (*simulated.Server, *state.Dir) {
	t.Helper()
	sim, err := simulated.New(&simulated.Options{Clusters: clusters, Pods: 50, Namespaces: 2})
	expect.NoError(t, err)
	t.Cleanup(sim.Close)
	configs := map[string]*rest.Config{"down": {Host: "https://127.0.0.1:1", BearerToken: "x"}}
	for i := range clusters {
		configs[fmt.Sprintf("sim-%d", i)] = sim.Cluster(i).Config()
	}
	s := &state.Dir{Path: t.TempDir()}
	_, stop := startServe(t, s, append([]string{
		"--kubeconfig", commandtest.WriteConfigs(t, filepath.Join(t.TempDir(), "config"), configs),
	}, args...)...)
	t.Cleanup(func() { _ = stop() })
	expect.Eventually(t, 20*time.Second, func() error {
		document, err := readStatus(t.Context(), s)
		if err != nil {
			return err
		}
		for _, c := range document.Clusters {
			if want := map[bool]string{true: "connecting", false: "live"}[c.Name == "down"]; c.State != want ||
				c.Name == "down" && c.Error == "" {
				return fmt.Errorf("%s is %s: %s", c.Name, c.State, c.Error)
			}
		}
		return nil
	})
	return sim, s
}

// readStatus runs watershed status.
func readStatus(ctx context.Context, s *state.Dir, args ...string) (report document.Clusters, err error) {
	text, err := command(ctx, append([]string{"status", "--state-dir", s.Path, "-o", "json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(text), &report)
	}
	return report, err
}

func TestStatus(t *testing.T) {
	sim, s := startSimulated(t, 2)
	out, err := command(t.Context(), "status", "--state-dir", s.Path)
	expect.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 9 {
		t.Fatalf("%d lines:\n%s", len(lines), out)
	}
	for i, want := range []string{
		"NAME    STATE        VERSION", "down    connecting   <none>", "sim-0   live         v1.",
		"sim-1   live         v1.", "",
		"down: Unreachable for ",
		"  do: start the API server, or correct its address in the kubeconfig; to see the address: kubectl " +
			"--kubeconfig ", "", "3 clusters (2 live, 1 connecting), 8/8 resources, ",
	} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}

	var report document.Clusters
	expect.Soon(t, "the memory is measured again", func() bool {
		report, err = readStatus(t.Context(), s)
		return err == nil && len(report.Clusters) == 3 && report.Clusters[1].Memory > 10_000
	})
	one := report.Clusters[1]
	if len(report.Clusters) != 3 || report.Version != build.Version() || report.Process == nil ||
		report.Process.Memory < 1<<20 {
		t.Errorf("%+v", report)
	}
	if one.Name != "sim-0" || one.Objects != 52 || one.Heard.IsZero() || one.Latency == 0 || one.Version == "" ||
		len(one.Problems) != 0 {
		t.Errorf("%+v", one)
	}
	if down := report.Clusters[0]; len(down.Problems) != 1 || down.Reason != "Unreachable" ||
		!strings.HasPrefix(down.Error, down.Problems[0].Message) {
		t.Errorf("%+v", down)
	}

	t.Run("names", func(t *testing.T) {
		if report, err := readStatus(t.Context(), s, "--cluster", "sim-1"); err != nil || len(report.Clusters) != 1 ||
			report.Clusters[0].Name != "sim-1" {
			t.Errorf("%+v, %v", report, err)
		}
		if _, err := command(t.Context(), "status", "--state-dir", s.Path, "--cluster", "nosuch"); err == nil ||
			!strings.Contains(err.Error(), `cluster "nosuch" not found: the server has down, sim-0, sim-1`) {
			t.Error(err)
		}
	})
	t.Run("formats", func(t *testing.T) {
		text, err := command(t.Context(), "status", "--state-dir", s.Path, "-o", "yaml")
		var again document.Clusters
		if err != nil || yaml.Unmarshal([]byte(text), &again) != nil || len(again.Clusters) != 3 {
			t.Errorf("%v:\n%s", err, text)
		}
		if wide, err := command(t.Context(), "status", "--state-dir", s.Path, "-o", "wide"); err != nil ||
			!strings.Contains(wide, "LATENCY") {
			t.Errorf("%v:\n%s", err, wide)
		}
	})
	t.Run("readers", func(t *testing.T) { testReaders(t, s) })
	t.Run("completion", func(t *testing.T) {
		out, err := command(t.Context(), "__complete", "status", "--state-dir", s.Path, "--cluster", "sim-0",
			"--cluster", "s")
		if err != nil || !strings.HasPrefix(out, "sim-1\tlive\n:4\n") {
			t.Errorf("%v: %q", err, out)
		}
	})
	t.Run("version", func(t *testing.T) {
		if out, err := command(t.Context(), "version", "--state-dir", s.Path); err != nil ||
			out != fmt.Sprintf("watershed %s\nserver %[1]s\n", build.Version()) {
			t.Errorf("%v: %q", err, out)
		}
		var both struct{ Client, Server string }
		out, err := command(t.Context(), "version", "--state-dir", s.Path, "-o", "json")
		if err != nil || json.Unmarshal([]byte(out), &both) != nil || both.Client != build.Version() ||
			both.Server != build.Version() {
			t.Errorf("%v: %q", err, out)
		}
	})
	t.Run("watch", func(t *testing.T) { testStatusWatch(t, sim, s) }) // it ends the clusters
}

// testReaders opens watches of a cluster and of the fleet, which are counted.
func testReaders(t *testing.T, s *state.Dir) {
	c, err := (&apiclient.Options{State: *s}).Open()
	expect.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var bodies []*http.Response
	for _, path := range []string{
		"/clusters/sim-0/api/v1/pods?watch=1", "/clusters/sim-0/api/v1/namespaces?watch=1",
		"/fleet/api/v1/pods?watch=1&watershedFleet=keyed-by-cluster",
	} {
		resp, err := c.Get(ctx, path)
		expect.NoError(t, err)
		bodies = append(bodies, resp)
	}
	readers := func() [3]int64 {
		report, err := readStatus(t.Context(), s)
		expect.NoError(t, err)
		return [3]int64{report.Clusters[1].Readers, report.Clusters[2].Readers, report.Process.Readers}
	}
	if got := readers(); bodies[0].StatusCode == http.StatusOK && got != [3]int64{2, 0, 1} {
		t.Errorf("the readers are %v", got)
	}
	cancel()
	for _, resp := range bodies {
		_ = resp.Body.Close()
	}
	expect.Soon(t, "the readers have left", func() bool { return readers() == [3]int64{} })
}

// testStatusWatch follows the status while a cluster changes: every line is a change.
func testStatusWatch(t *testing.T, sim *simulated.Server, s *state.Dir) {
	var out output
	cmd := newCommand()
	cmd.SetArgs([]string{"status", "--state-dir", s.Path, "-w", "--interval", "100ms"})
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	expect.Soon(t, "the table is printed", func() bool { return strings.Count(out.String(), "\n") >= 4 })
	time.Sleep(300 * time.Millisecond) // three intervals, in which nothing may be printed
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d lines though nothing changes:\n%s", n, &out)
	}
	sim.Close()
	expect.Eventually(t, 20*time.Second, func() error {
		if text := out.String(); strings.Count(text, "stale") < 2 || !strings.Contains(text, "Unreachable") {
			return errors.New(text)
		}
		return nil
	})
	cancel()
	expect.NoError(t, <-ended)
}

func TestStatus_saysWhatIsWrong(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"one": ""})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--state-dir", t.TempDir()}, "no server is running"},
		{[]string{"-o", "xml"}, "use table, wide, json or yaml"},
		{[]string{"-o", "json", "-w"}, "-w has no effect with -o json"},
		{[]string{"-w", "--interval", "1ms"}, "at least 100ms"},
		{[]string{"--server", "http://a"}, "only sent over https"},
		{
			[]string{"--server", "https://127.0.0.1:1", "--kubeconfig", config, "--context", "two"},
			`context "two" does not exist`,
		},
		{[]string{"--server", "https://127.0.0.1:1", "--kubeconfig", config, "--context", "one"}, "does not answer"},
	} {
		if out, err := command(t.Context(), append([]string{"status"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%v: %v and %q, want something about %s", c.args, err, out, c.want)
		}
	}
}
