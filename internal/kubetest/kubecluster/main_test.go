// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// commandVariable makes the test binary run the command.
const commandVariable = "KUBECLUSTER_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command is a running kubecluster.
type command struct {
	cmd    *exec.Cmd
	tmp    string // where its folder is
	ready  string // its output until it was ready
	out    *bufio.Reader
	stderr *bytes.Buffer
}

func startCommand(t *testing.T, args ...string) *command {
	t.Helper()
	c := &command{cmd: exec.Command(os.Args[0], args...), tmp: t.TempDir(), stderr: &bytes.Buffer{}}
	c.cmd.Env = append(os.Environ(), commandVariable+"=1", "TMPDIR="+c.tmp)
	c.cmd.Stderr = c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	c.out = bufio.NewReader(out)
	for !strings.Contains(c.ready, "Ctrl-C") {
		line, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatalf("it ended before it was ready: %v\n%s%s", err, c.ready, c.stderr)
		}
		c.ready += line
	}
	return c
}

// wait returns the output at its end. Its folder must be gone by then.
func (c *command) wait(t *testing.T) (string, error) {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	rest, err := io.ReadAll(c.out)
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(c.tmp, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return string(rest), c.cmd.Wait()
}

func skipUnlessBuilt(t *testing.T) *binaries.Set {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Missing()) > 0 {
		if os.Getenv(kubetest.RequiredVariable) == "required" {
			t.Fatal(kubetest.ErrNotBuilt)
		}
		t.Skip(kubetest.ErrNotBuilt)
	}
	return set
}

func TestRun_twoClustersUntilInterrupted(t *testing.T) {
	skipUnlessBuilt(t)
	c := startCommand(t, "-n", "2", "-nodes", "1")
	t.Log(c.ready)
	tries := regexp.MustCompile(`try: +(.*)`).FindAllStringSubmatch(c.ready, -1)
	if len(tries) != 3 {
		t.Fatalf("%d examples, want one per cluster and one for all", len(tries))
	}
	for _, try := range tries {
		args := strings.Fields(try[1])
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "node-0   Ready") {
			t.Errorf("%s: %v\n%s", try[1], err, out)
		}
	}
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := c.wait(t)
	if err != nil || !strings.Contains(rest, "stopped 2 clusters") || !strings.Contains(rest, "removed ") {
		t.Errorf("at the end: %v\n%s%s", err, rest, c.stderr)
	}
}

func TestRun_componentDies(t *testing.T) {
	set := skipUnlessBuilt(t)
	c := startCommand(t, "-nodes", "1")
	// There is one scheduler that is a child of the command.
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(c.cmd.Process.Pid), "-f", set.Scheduler.Path).Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no pgrep")
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("kill", "-9", strings.TrimSpace(string(out))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rest, err := c.wait(t)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the command ended with %v, want exit code 1", err)
	}
	if !strings.Contains(c.stderr.String(), "cluster-1: kube-scheduler ended: signal: killed; the end of its log:\n") {
		t.Errorf("it said\n%s%s", rest, c.stderr)
	}
}

func TestRun_notBuilt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), commandVariable+"=1", binaries.CacheVariable+"="+t.TempDir(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "run make kube first") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestRun_interruptedWhileStarting(t *testing.T) {
	skipUnlessBuilt(t)
	tmp := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), commandVariable+"=1", "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "starting cluster-1\n" {
		t.Errorf("first line %q, %v", line, err)
	}
	time.Sleep(500 * time.Millisecond) // an arbitrary moment before it is ready
	_ = cmd.Process.Signal(syscall.SIGTERM)
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the command ended with %v\n%s", err, rest)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
