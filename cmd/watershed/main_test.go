// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
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

// What client-go says is in the log like everything else.
func TestNewLogger(t *testing.T) {
	var log bytes.Buffer
	newLogger(&log).Info("ours")
	klog.Warning("theirs")
	klog.SetSlogLogger(quiet)
	if got := log.String(); !strings.Contains(got, "level=INFO msg=ours") || !strings.Contains(got, "msg=theirs") {
		t.Error(got)
	}
}

func TestServe_refusesWhatOthersReach(t *testing.T) {
	dir := t.TempDir()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "10.0.0.1:7443", "[fe80::1]:0"} {
		_, err := command(t.Context(), "serve", "--state-dir", dir, "--listen", address)
		if err == nil || !strings.Contains(err.Error(), "no access control") {
			t.Errorf("--listen %s: %v", address, err)
		}
		_, err = command(t.Context(), "serve", "--state-dir", dir, "--listen", "127.0.0.1:0", "--pprof", address)
		if err == nil || !strings.Contains(err.Error(), "no access control") {
			t.Errorf("--pprof %s: %v", address, err)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "127.1.2.3:0", "localhost:0"} {
		l, err := listenLoopback(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !loopbackIP(l).IsLoopback() {
			t.Errorf("%s listens on %s", address, l.Addr())
		}
		l.Close()
	}
}

func TestServe_saysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "nonsense"}, "missing port"},
		{[]string{"--resources", "a/b"}, `pattern "a/b"`},
		{[]string{"--history", "0"}, "--history 0"},
		{[]string{"more"}, "unknown command"},
	} {
		args := append([]string{"serve", "--state-dir", dir, "--listen", "127.0.0.1:0"}, c.args...)
		if _, err := command(t.Context(), args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want something about %s", c.args, err, c.want)
		}
	}
	if out, err := command(t.Context(), "version"); err != nil || !strings.Contains(out, "go1.") {
		t.Errorf("version is %q, %v", out, err)
	}
}
