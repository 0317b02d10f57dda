// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
)

// eachCommand calls a function for each command that can be run.
func eachCommand(c *cobra.Command, f func(c *cobra.Command)) {
	if c.Runnable() {
		f(c)
	}
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

// TestServerFlags checks that all commands that use a running server have the same flags for it, and
// one flag for its clusters.
func TestServerFlags(t *testing.T) {
	var using, selecting []string
	flags := map[string]*pflag.Flag{}
	eachCommand(newCommand(), func(c *cobra.Command) {
		if f := c.Flags().Lookup("cluster"); f != nil {
			selecting = append(selecting, c.Name())
			if f.Value.Type() != "stringArray" || !strings.HasSuffix(f.Usage, "; may be repeated (default all)") {
				t.Errorf("%s --cluster: %s", c.Name(), f.Usage)
			}
		}
		if c.Flags().Lookup("server") == nil {
			return
		}
		using = append(using, c.Name())
		for _, name := range []string{"server", "certificate-authority", "kubeconfig", "context", "state-dir"} {
			f := c.Flags().Lookup(name)
			if flags[name] == nil {
				flags[name] = f
			}
			if f == nil || f.Usage != flags[name].Usage {
				t.Errorf("%s --%s: %v", c.Name(), name, f)
			}
		}
	})
	expect.Equal(t, strings.Join(using, " "), "changes diff kubeconfig log status verify version")
	expect.Equal(t, strings.Join(selecting, " "), "changes check diff log status verify")
}

// TestOutputFlag checks the rule for -o: a default for people, and json and yaml in all commands.
func TestOutputFlag(t *testing.T) {
	want := map[string]string{
		"changes": "table", "check": "text", "diff": "text", "log": "text", "status": "table", "verify": "table",
		"version": "text",
	}
	eachCommand(newCommand(), func(c *cobra.Command) {
		f := c.Flags().Lookup("output")
		if f == nil {
			return
		}
		if f.DefValue != want[c.Name()] || f.Shorthand != "o" {
			t.Errorf("%s -%s %s", c.Name(), f.Shorthand, f.DefValue)
		}
		delete(want, c.Name())
		for _, format := range []string{f.DefValue, "json", "yaml"} {
			if err := f.Value.Set(format); err != nil {
				t.Errorf("%s -o %s: %v", c.Name(), format, err)
			}
		}
		for _, format := range []string{"", "xml"} {
			if err := f.Value.Set(format); err == nil || !strings.Contains(err.Error(), " json or yaml") {
				t.Errorf("%s -o %q: %v", c.Name(), format, err)
			}
		}
	})
	if len(want) > 0 {
		t.Errorf("commands without -o: %v", want)
	}
}

// TestServerFlags_everywhere uses a server in all ways with all commands.
func TestServerFlags_everywhere(t *testing.T) {
	sim, s := startSimulated(t, 2, "--data-dir", filepath.Join(t.TempDir(), "data"))
	pod := sim.Cluster(0).Pod(0)
	replica := filepath.Join(t.TempDir(), "replica.yaml")
	_, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path, "--write", replica)
	expect.NoError(t, err)
	running, err := s.Server()
	expect.NoError(t, err)
	address := "https://" + running.Address
	empty := &state.Dir{Path: t.TempDir()}
	t.Setenv("WATERSHED_STATE_DIR", empty.Path) // it does not count as --state-dir
	for name, where := range map[string][]string{
		"this machine":    {"--state-dir", s.Path},
		"context":         {"--kubeconfig", replica, "--context", "watershed-fleet"},
		"current context": {"--kubeconfig", replica},
		"authority": {
			"--kubeconfig", replica, "--context", "watershed-fleet", "--certificate-authority", s.AuthorityFile(),
		},
		"server": {
			"--server", address, "--certificate-authority", s.AuthorityFile(), "--kubeconfig", replica, "--context",
			"watershed-sim-0",
		},
		"context of a cluster": {"--state-dir", s.Path, "--kubeconfig", replica, "--context", "watershed-sim-0"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{
				{"status", "--cluster", "sim-0", "-o", "json"},
				{"verify", "--cluster", "sim-0", "--resource", "pods", "-o", "yaml"},
				{"log", "pod/" + pod.Name, "-n", pod.Namespace, "--cluster", "sim-0", "-o", "json"},
				{"diff", "pod/" + pod.Name, "-n", pod.Namespace, "--cluster", "sim-0", "--at", "1ms", "-o", "yaml"},
				{"changes", "--cluster", "sim-0", "-o", "yaml"},
				{"version"},
			} {
				out, trouble, err := commandParts(t, append(slices.Clone(args), where...)...)
				want := map[string]string{
					"status": "sim-0", "verify": "results:", "log": `"items": [`, "diff": "items:", "changes": "items:",
					"version": "server ",
				}
				if err != nil || !strings.Contains(out, want[args[0]]) {
					t.Errorf("%v: %v\n%s%s", args, err, out, trouble)
				}
			}
		})
	}
	// A context names the server for kubeconfig too.
	out, trouble, err := commandParts(t, "kubeconfig", "--kubeconfig", replica, "--context", "watershed-fleet")
	if err != nil || !strings.Contains(out, address+"/fleet") {
		t.Errorf("%v: %s\n%s", err, trouble, out)
	}
	for want, where := range map[string][]string{
		"--state-dir has no effect with a context for a fleet": {
			"--kubeconfig", replica, "--context", "watershed-fleet", "--state-dir", s.Path,
		},
		"--state-dir has no effect with --server": {"--server", address, "--state-dir", s.Path},
		`context "nosuch" does not exist`:         {"--kubeconfig", replica, "--context", "nosuch"},
		`context "watershed-sim-0" does not name a server`: {
			"--kubeconfig", replica, "--context", "watershed-sim-0",
		},
		"certificate signed by unknown authority": {
			"--server", address, "--kubeconfig", replica, "--context", "watershed-fleet",
		},
		"no server is running on this machine": {"--cluster", "sim-0"},
		"only sent over https": {
			"--kubeconfig", commandtest.WriteFleetContext(t, "http://127.0.0.1:1/fleet"), "--context", "fleet",
		},
	} {
		for _, name := range []string{"status", "verify", "changes"} {
			_, err := command(t.Context(), append([]string{name}, where...)...)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v: %v, want something about %s", name, where, err, want)
			}
		}
	}
}
