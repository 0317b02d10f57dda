// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestMessages checks texts that say what to do next: they name the flag, and their commands work
// as they are printed.
func TestMessages(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	sim, s := startSimulated(t, 2, "--data-dir", data, "--except", "apiservices.apiregistration.k8s.io")
	contains := func(what, text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q does not contain %q", what, text, w)
			}
		}
	}
	fails := func(args ...string) string {
		t.Helper()
		out, trouble, err := commandParts(t, args...)
		if err == nil {
			t.Errorf("%q succeeds: %s%s", args, out, trouble)
			return ""
		}
		return err.Error()
	}
	kubeconfig := commandtest.WriteKubeconfig(t, map[string]string{"a": ""})
	other := []string{"serve", "--state-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig}
	inUse := fails(append(other, "--data-dir", data)...)
	contains("a directory in use", inUse, "--data-dir: another process uses the directory "+data,
		"choose another directory")
	if strings.Contains(inUse, "temporarily") {
		t.Error(inUse)
	}
	contains("no certificate", fails(append(other, "--tls-cert-file", "/nope", "--tls-key-file", "/nope")...),
		"--tls-cert-file and --tls-key-file: certificate: open /nope")

	path := filepath.Join(t.TempDir(), "replica.yaml")
	out, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path, "--write", path)
	expect.NoError(t, err)
	contains("kubeconfig", out, "has 4 contexts", "kubectl uses watershed-fleet unless --context names another")

	pod := sim.Cluster(0).Pod(0)
	contains("log of an object that does not exist",
		fails("log", "pod/nope", "-n", pod.Namespace, "--state-dir", s.Path, "--cluster", "sim-0"),
		"log of pod/nope: there are no changes in the last 24h, and it cannot be read now", "not found")
	// All clusters have the pod.
	for _, clusters := range [][]string{nil, {"--cluster", "sim-0"}} {
		out, trouble, err := commandParts(t, append([]string{
			"log", "pod/" + pod.Name, "-n", pod.Namespace, "--state-dir", s.Path, "--since", "1ms",
		}, clusters...)...)
		expect.NoError(t, err)
		contains("log of an object without changes", out+trouble, "there are no changes in the last 1ms")
	}

	for _, cluster := range [][]string{nil, {"--cluster", "sim-0"}} {
		args := append([]string{"changes", "--state-dir", s.Path, "--since", "9h"}, cluster...)
		_, trouble, err := commandParts(t, args...)
		expect.NoError(t, err)
		contains("changes of more than the past", trouble, "cluster sim-0: the past begins at ")
	}

	c, err := (&apiclient.Options{State: *s}).Open()
	expect.NoError(t, err)
	defer c.Close()
	report, err := c.Report(t.Context(), "watershed")
	expect.NoError(t, err)
	about := remedy.Subject{
		Program:    "watershed",
		Cluster:    "sim-0",
		Context:    report.Contexts["sim-0"],
		Kubeconfig: report.Kubeconfig,
		User:       "narrow",
	}
	_, rights, _ := strings.Cut(remedy.For("Forbidden", about), ": watershed ")
	rights, _, _ = strings.Cut(rights, " | ")
	contains("the rights", rights, "rbac --kubeconfig "+report.Kubeconfig+" --context sim-0")
	out, err = command(t.Context(), strings.Fields(rights)...)
	expect.NoError(t, err)
	contains(rights, out, "kind: ClusterRole", "- pods", "name: narrow")
}
