// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// command runs the program in this process, and returns what it prints.
func command(ctx context.Context, args ...string) (string, error) {
	out, _, err := commandtest.Run(ctx, newCommand(), args...)
	return out, err
}

// commandParts runs the program in this process, and returns both of its outputs.
func commandParts(t *testing.T, args ...string) (out, trouble string, err error) {
	t.Helper()
	return commandtest.Run(t.Context(), newCommand(), args...)
}

// Profiles have names of functions, sizes and the command line, and are only for this machine.
func TestServe_profilesStayOnTheMachine(t *testing.T) {
	for _, address := range []string{
		"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "10.0.0.1:7443", "[fe80::1]:0",
	} {
		_, err := command(t.Context(), "serve", "--state-dir", t.TempDir(), "--kubeconfig",
			commandtest.WriteKubeconfig(t, map[string]string{"one": ""}), "--listen", "127.0.0.1:0", "--pprof", address)
		if err == nil || !strings.Contains(err.Error(), "not a loopback address") {
			t.Errorf("--pprof %s: %v", address, err)
		}
	}
}

// There is an owner only where other machines cannot connect.
func TestServe_ownerIsLocal(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:0": true, ":0": false} {
		s := state.Dir{Path: t.TempDir()}
		kubeconfig := commandtest.WriteKubeconfig(t, map[string]string{"one": ""})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := command(ctx, "serve", "--state-dir", s.Path, "--kubeconfig", kubeconfig, "--listen", address)
			ended <- err
		}()
		expect.Soon(t, "the server is announced", func() bool { _, err := s.Server(); return err == nil })
		token, err := s.Owner()
		expect.NoError(t, err)
		if (token != "") != want {
			t.Errorf("--listen %s: there is an owner: %v", address, !want)
		}
		cancel()
		expect.NoError(t, <-ended)
	}
}

func TestServe_saysWhatIsWrong(t *testing.T) {
	dir, config := t.TempDir(), commandtest.WriteKubeconfig(t, map[string]string{"a": ""})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "nonsense"}, "missing port"},
		{[]string{"--listen", taken.Addr().String()}, "--listen"},
		{[]string{"--resources", "a/b"}, `pattern "a/b"`},
		{[]string{"--history", "0"}, "--history 0"},
		{[]string{"more"}, "unknown command"},
	} {
		args := append([]string{
			"serve", "--state-dir", dir, "--listen", "127.0.0.1:0", "--kubeconfig", config,
		}, c.args...)
		if _, err := command(t.Context(), args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want something about %s", c.args, err, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, arg := range []string{"version", "--version"} {
		if out, err := command(t.Context(), arg); err != nil || !strings.Contains(out, " go1.") ||
			strings.Contains(out, "(devel)") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s prints %q, %v", arg, out, err)
		}
	}
}
