// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// command runs the program in this process.
func command(ctx context.Context, args ...string) (string, error) {
	cmd := newCommand()
	cmd.SetArgs(args)
	var out, trouble bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&trouble)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// TestNewLogger checks that log lines of client-go go to the same log.
func TestNewLogger(t *testing.T) {
	var log bytes.Buffer
	for format, want := range map[string][]string{
		logText: {"level=INFO msg=ours", "level=INFO msg=theirs"},
		logJSON: {`"level":"INFO","msg":"ours"`, `"level":"INFO","msg":"theirs"`},
	} {
		log.Reset()
		newLogger(&log, format).Info("ours")
		klog.Warning("theirs")
		klog.SetSlogLogger(quiet)
		for _, text := range want {
			if got := log.String(); !strings.Contains(got, text) {
				t.Errorf("the log in %s has no %s:\n%s", format, text, got)
			}
		}
	}
}

// Profiles contain parts of the objects, and are only for this machine.
func TestServe_profilesStayOnTheMachine(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "10.0.0.1:7443", "[fe80::1]:0"} {
		_, err := command(t.Context(), "serve", "--state-dir", t.TempDir(), "--kubeconfig", writeKubeconfig(t, map[string]string{"one": ""}), "--listen", "127.0.0.1:0", "--pprof", address)
		if err == nil || !strings.Contains(err.Error(), "not a loopback address") {
			t.Errorf("--pprof %s: %v", address, err)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "127.1.2.3:0", "localhost:0"} {
		l, err := listenLoopback(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !serving.IsLoopback(l) {
			t.Errorf("%s listens on %s", address, l.Addr())
		}
		l.Close()
	}
}

// There is an owner only where other machines cannot connect.
func TestServe_ownerIsLocal(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:0": true, ":0": false} {
		s := state{dir: t.TempDir()}
		kubeconfig := writeKubeconfig(t, map[string]string{"one": ""})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := command(ctx, "serve", "--state-dir", s.dir, "--kubeconfig", kubeconfig, "--listen", address)
			ended <- err
		}()
		expect.Soon(t, "the server is announced", func() bool { _, err := s.server(); return err == nil })
		token, err := s.owner()
		expect.NoError(t, err)
		if (token != "") != want {
			t.Errorf("--listen %s: there is an owner: %v", address, !want)
		}
		cancel()
		expect.NoError(t, <-ended)
	}
}

func TestServe_saysWhatIsWrong(t *testing.T) {
	dir, config := t.TempDir(), writeKubeconfig(t, map[string]string{"a": ""})
	taken, err := listenLoopback(t.Context(), "127.0.0.1:0")
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
		args := append([]string{"serve", "--state-dir", dir, "--listen", "127.0.0.1:0", "--kubeconfig", config}, c.args...)
		if _, err := command(t.Context(), args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want something about %s", c.args, err, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, arg := range []string{"version", "--version"} {
		if out, err := command(t.Context(), arg); err != nil || !strings.Contains(out, " go1.") || strings.Contains(out, "(devel)") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s prints %q, %v", arg, out, err)
		}
	}
}

func TestDescribe(t *testing.T) {
	settings := func(pairs ...string) (all []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return all
	}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.0 go1.26 linux/amd64":       {Main: debug.Module{Version: "v1.2.0"}, GoVersion: "go1.26", Settings: settings("GOOS", "linux", "GOARCH", "amd64", "vcs.revision", "0123456789abcdef")},
		"devel-0123456789ab go1.26":       {Main: debug.Module{Version: "(devel)"}, GoVersion: "go1.26", Settings: settings("vcs.revision", "0123456789abcdef", "vcs.modified", "false")},
		"devel-0123456789ab+dirty go1.26": {GoVersion: "go1.26", Settings: settings("vcs.revision", "0123456789abcdef", "vcs.modified", "true")},
		"devel go1.26":                    {Main: debug.Module{Version: "(devel)"}, GoVersion: "go1.26"},
	} {
		if got := describe(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
