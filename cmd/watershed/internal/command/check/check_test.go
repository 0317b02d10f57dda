// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package check

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/preflight"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestCheck_configuration has flags and sources with which serve would not start. The clusters
// of TestTroubles are the other checks.
// runCheck runs the command in this process, and returns what it prints.
func runCheck(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, _, err := commandtest.Run(t.Context(), NewCommand(), args...)
	return out, err
}

func TestCheck_configuration(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"one": "", "two": ""})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--kubeconfig", "/nonexistent"}, "FAIL    configuration: kubeconfig /nonexistent does not exist"},
		{[]string{"--kubeconfig", config, "--context", "three"},
			`FAIL    configuration: context "three" does not exist`},
		{[]string{"--kubeconfig", config, "--fleet-users", "a"},
			"FAIL    configuration: --fleet-users and --fleet-groups have no effect without --home"},
		{[]string{"--kubeconfig", config, "--cluster", "three"},
			`FAIL    configuration: cluster "three" not found; do: name one of those that the sources have: one, two`},
		{[]string{"--kubeconfig-dir", t.TempDir()}, "FAIL    configuration: the sources have no clusters; do: add a " +
			"cluster to one of them"},
	} {
		out, err := runCheck(t, c.args...)
		if !errors.Is(err, errFailed) || !strings.HasPrefix(out, c.want) || !strings.Contains(out, "; do: ") ||
			!strings.HasSuffix(out, "1 check of 0 clusters: 0 ok, 0 warnings, 1 failed\n") {
			t.Errorf("%q: %v:\n%s", c.args, err, out)
		}
	}
	if _, err := runCheck(t, "--kubeconfig", config, "-o", "xml"); err == nil ||
		!strings.Contains(err.Error(), "use text, json or yaml") {
		t.Error(err)
	}
}

// TestCheck_start has settings with which serve ends at its start: check says so before.
func TestCheck_start(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"one": ""})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer taken.Close()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	expect.NoError(t, os.WriteFile(plain, nil, 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", taken.Addr().String()}, "choose another address with --listen"},
		{[]string{"--listen", "7443"}, "--listen 7443: "},
		{[]string{"--listen", "localhost:99999"}, "--listen localhost:99999: "},
		{[]string{"--tls-cert-file", "/nope", "--tls-key-file", "/nope"}, "--tls-cert-file and --tls-key-file: "},
		{[]string{"--audit-log", "/nope/x"}, "--audit-log: "},
		{[]string{"--data-dir", plain + "/x"}, "--data-dir: "},
		{[]string{"--data-dir", dir + "/data", "--data-key-file", "/nope"}, "--data-key-file: "},
		{[]string{"--metrics-listen", taken.Addr().String()}, "--metrics-listen: "},
		{[]string{"--state-dir", plain}, "--state-dir: "},
	} {
		args := append([]string{"--kubeconfig", config, "--state-dir", t.TempDir(), "--listen", "127.0.0.1:0"},
			c.args...)
		out, err := runCheck(t, args...)
		line, _, _ := strings.Cut(out, "\n")
		if !errors.Is(err, errFailed) || !strings.HasPrefix(line, "FAIL    configuration: ") ||
			!strings.Contains(line, c.want) {
			t.Errorf("%q: %v: %s", c.args, err, line)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("check has left %v, %v", left, err)
	}
	// A server that runs has its addresses.
	s := &state.Dir{Path: t.TempDir()}
	release, err := s.Lock()
	expect.NoError(t, err)
	defer release()
	if out, _ := runCheck(t, "--kubeconfig", config, "--state-dir", s.Path, "--listen",
		taken.Addr().String()); !strings.HasPrefix(out, "ok ") {
		t.Errorf("while a server runs:\n%s", out)
	}
}

func TestCheck_document(t *testing.T) {
	config := commandtest.WriteConfigs(t, filepath.Join(t.TempDir(), "config"), map[string]*rest.Config{
		"one": {Host: "https://127.0.0.1:1", BearerToken: "x"}, "two": {Host: "https://127.0.0.1:1", BearerToken: "y"},
	})
	text, err := runCheck(t, "--kubeconfig", config, "--state-dir", t.TempDir(), "--listen", "127.0.0.1:0", "-o",
		"json", "--cluster", "two")
	var document struct {
		Checks []preflight.Result
		Failed int
	}
	if !errors.Is(err, errFailed) || json.Unmarshal([]byte(text), &document) != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	last := document.Checks[len(document.Checks)-1]
	if document.Failed != 1 || len(document.Checks) != 4 || last.Cluster != "two" || last.Check != "connection" ||
		last.Outcome != preflight.Bad || last.Reason != "Unreachable" ||
		!strings.HasPrefix(last.Remedy, "start the API server") {
		t.Errorf("%+v", document)
	}
	if strings.Contains(text, `"y"`) {
		t.Errorf("a token is in\n%s", text)
	}
}

// In a terminal there are signs instead of words.
func TestPrinter(t *testing.T) {
	var out strings.Builder
	p := &printer{out: &out, sign: true}
	p.print(preflight.Result{Check: "configuration", Outcome: preflight.Good, Message: "2 clusters"},
		preflight.Result{Cluster: "a", Check: "speed", Outcome: preflight.Warning, Message: "slow", Remedy: "wait"},
		preflight.Result{Cluster: "a", Check: "clock", Outcome: preflight.Bad, Message: "late", Remedy: "wind it"})
	p.summary(1)
	want := "✓ configuration: 2 clusters\n! a speed: slow; do: wait\n✗ a clock: late; do: wind it\n3 checks of 1 " +
		"cluster: 1 ok, 1 warning, 1 failed\n"
	expect.Equal(t, out.String(), want)
	p.color = true
	if line := p.line(p.all[2]); !strings.HasPrefix(line, "\x1b[31m✗\x1b[0m a") {
		t.Errorf("%q", line)
	}
}
