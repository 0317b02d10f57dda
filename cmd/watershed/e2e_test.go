// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestProgram serves a real cluster. A real kubectl and other programs read it as they
// read the cluster itself.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, "jane", filepath.Join(dir, "jane.crt"), filepath.Join(dir, "jane.key"))
	k := kubetest.Start(t, &kubetest.Options{
		Name: "real", Users: []kubetest.User{{Name: "jane"}, {Name: "joe"}},
		APIServerArgs: []string{"--client-ca-file=" + filepath.Join(dir, "jane.crt")},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	program := filepath.Join(dir, "watershed")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	s := state.Dir{Path: filepath.Join(dir, "state")}
	issuer := startIssuer(t, dir)
	server := exec.CommandContext(ctx, program, append([]string{
		"serve", "--state-dir", s.Path, "--kubeconfig", k.Kubeconfig(), "--context", k.Name(), "--listen",
		"127.0.0.1:0",
	}, issuer.flags()...)...)
	log := &output{}
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() {
		_ = server.Process.Kill()
		if t.Failed() {
			t.Logf("log of the server:\n%s", log)
		}
	}()
	// until retries until there is no error.
	until := func(what string, ask func() error) {
		t.Helper()
		for {
			err := ask()
			if err == nil {
				return
			}
			select {
			case end := <-ended:
				ended <- end
				t.Fatalf("%s: %v; the server has ended: %v", what, err, end)
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		var trouble bytes.Buffer
		cmd.Stderr = &trouble
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, &trouble)
		}
		return string(out), err
	}

	config := filepath.Join(dir, "kubeconfig")
	until("watershed kubeconfig", func() error {
		text, err := run(program, "kubeconfig", "--state-dir", s.Path)
		if err == nil && !strings.Contains(text, "current-context: "+contextPrefix+k.Name()) {
			err = fmt.Errorf("the cluster is not in\n%s", text)
		}
		if err != nil {
			return err
		}
		return os.WriteFile(config, []byte(text), 0o600)
	})
	createPod(ctx, t, k, "first")
	for _, args := range [][]string{
		{"get", "pods", "-o", "name"},
		{"get", "namespaces", "-o", "name"},
		{"get", "priorityclasses", "-o", "name"},
		{"get", "--raw", "/version"},
		{"explain", "pods.spec.containers.image"},
	} {
		want, err := k.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		until("kubectl "+strings.Join(args, " "), func() error {
			got, err := run(k.KubectlPath(), append([]string{
				"--kubeconfig", config, "--cache-dir", t.TempDir(),
			}, args...)...)
			if err == nil && got != want {
				err = fmt.Errorf("%q, want %q", got, want)
			}
			return err
		})
	}

	t.Run("node", func(t *testing.T) { testNode(ctx, t, k, config) })
	t.Run("node writes", func(t *testing.T) { testNodeWrites(ctx, t, k, "joe") })
	t.Run("clients", func(t *testing.T) {
		users, credentials := writeUsers(ctx, t, k, dir)
		config, server := contextsOf(ctx, t, program, &s, users, credentials, k.Name())
		// The last one is the stranger.
		credentials[len(credentials)-1] = issuer.addUser(ctx, t, k, config, server+"/fleet")
		testClients(ctx, t, k, config, credentials)
	})
	checkLog(t, log.String())

	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the server does not end")
	}
	if _, err := s.Server(); err == nil {
		t.Error("the server has left its address behind")
	}
}

// checkLog checks the log of a server whose cluster responds.
func checkLog(t *testing.T, log string) {
	t.Helper()
	if n := strings.Count(log, "msg=\"cluster live\""); n != 1 {
		t.Errorf("%d lines of a cluster that is live, want 1", n)
	}
	if strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") || strings.Count(log, "\n") > 10 {
		t.Errorf("the log of a good day has warnings, or many lines:\n%s", log)
	}
}
