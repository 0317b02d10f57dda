// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
)

func TestInvocation(t *testing.T) {
	for _, c := range []struct {
		args []string
		name string
		rest []string
	}{
		{[]string{"/usr/bin/watershed", "status"}, "watershed", []string{"status"}},
		{[]string{"./other"}, "watershed", []string{}},
		{
			[]string{"/home/u/.krew/bin/kubectl-watershed", "status", "-w"},
			"kubectl watershed",
			[]string{"status", "-w"},
		},
		{[]string{`kubectl-watershed.exe`}, "kubectl watershed", []string{}},
		{[]string{"kubectl_complete-watershed", "sta", ""}, "kubectl watershed", []string{"__complete", "sta", ""}},
	} {
		name, rest := invocation(c.args)
		if name != c.name || !cmp.Equal(rest, c.rest) {
			t.Errorf("%q is %q %q, want %q %q", c.args, name, rest, c.name, c.rest)
		}
	}
}

// As a plugin all texts name the command as users type it.
func TestRename(t *testing.T) {
	for _, name := range []string{"serve", "status", "check", "kubeconfig", "rbac", "version", "log", "diff",
		"changes", "verify", "disk"} {
		cmd := newCommand()
		rename(cmd, "kubectl watershed")
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{name, "--help"})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if !strings.Contains(text, "  kubectl watershed "+name) ||
			strings.Contains(strings.ReplaceAll(text, "kubectl watershed "+name, ""), "  watershed "+name) {
			t.Errorf("%s", text)
		}
	}
}

func TestCompletion(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"prod-eu": "", "prod-us": "", "test": ""})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--kubeconfig", config, "--context", "prod"}, "prod-eu\nprod-us\n:4\n"},
		{[]string{"check", "--kubeconfig", config, "--context", "t"}, "test\n:4\n"},
		{[]string{"status", "--kubeconfig", config, "--context", ""}, "prod-eu\nprod-us\ntest\n:4\n"},
		{[]string{"kubeconfig", "--kubeconfig", config, "--context", "test"}, "test\n:4\n"},
		{[]string{"rbac", "--kubeconfig", config, "--context", "x"}, ":4\n"},
		{[]string{"kubeconfig", "--kubeconfig", config, "test", "prod"}, "prod-eu\nprod-us\n:4\n"},
		{[]string{"verify", "--kubeconfig", config, "--context", "t"}, "test\n:4\n"},
		{[]string{"status", "-o", ""}, "table\nwide\njson\nyaml\n:4\n"},
		{[]string{"log", "-o", ""}, "text\njson\nyaml\n:4\n"},
		{[]string{"check", "-o", "j"}, "json\n:4\n"},
		{[]string{"changes", "--state-dir", t.TempDir(), "--cluster", ""}, ":4\n"},
	} {
		out, err := command(t.Context(), append([]string{"__complete"}, c.args...)...)
		if err != nil || out != c.want {
			t.Errorf("%q: %v: %q, want %q", c.args, err, out, c.want)
		}
	}
}

// The scripts are those that the shells accept, as far as the shells are installed.
func TestCompletion_scripts(t *testing.T) {
	for shell, check := range map[string][]string{
		"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"}, "powershell": nil,
	} {
		script, err := command(t.Context(), "completion", shell)
		if err != nil || len(script) < 1000 || !strings.Contains(script, "watershed") {
			t.Errorf("%s: %v: %.100s", shell, err, script)
		}
		if check == nil {
			continue
		}
		if _, err := exec.LookPath(check[0]); err != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), check[0], append(check[1:], "/dev/stdin")...)
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
}
