// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const clusterName = "soak"

// subject is the server that the clients use.
type subject interface {
	// kubeconfig returns a file whose current context is the subject.
	kubeconfig() string
	// start returns when the subject serves.
	start(context.Context) error
	kill()
	// complaints returns the lines of its log that report problems.
	complaints() []string
}

// newSubject starts the subject that [subjectVariable] selects.
func newSubject(t *testing.T, c *kubetest.Cluster) subject {
	t.Helper()
	if os.Getenv(subjectVariable) == "server" {
		return &server{c}
	}
	return newReplica(t, c)
}

// newReplica starts a replica of a cluster, with further flags. It ends with the test.
func newReplica(t *testing.T, c *kubetest.Cluster, flags ...string) *replica {
	t.Helper()
	binary, err := build(t.TempDir(), ".", "cmd/watershed")
	if err != nil {
		t.Fatal(err)
	}
	port, err := stablePort()
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{
		binary:  binary,
		dir:     t.TempDir(),
		address: fmt.Sprintf("127.0.0.1:%d", port),
		origin:  c.Kubeconfig(),
		flags:   flags,
	}
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func restConfig(s subject) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return cfg, nil
}

// stablePort returns a free port below those that the kernel assigns to sockets without
// one: such a port could be taken while the replica is down, even by a client that
// connects to itself.
func stablePort() (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port below 30000")
}

// replica is watershed serve, one process after the other at the same address.
type replica struct {
	binary  string
	dir     string
	address string
	origin  string
	flags   []string
	process *child
	lines   []string // of the previous processes
}

func (r *replica) kubeconfig() string { return filepath.Join(r.dir, "replica.yaml") }

func (r *replica) stateDir() string { return filepath.Join(r.dir, "state") }

func (r *replica) start(ctx context.Context) error {
	if err := r.launch(); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := expect.Until(soon, func() error { return r.ready(soon) }); err != nil {
		r.process.kill()
		return fmt.Errorf("replica: %w: %s", err, r.process.tail())
	}
	return nil
}

// launch starts the process and does not wait for it.
func (r *replica) launch() error {
	args := []string{
		"serve", "--kubeconfig", r.origin, "--context", clusterName, "--listen", r.address, "--state-dir", r.stateDir(),
	}
	for _, pattern := range []string{"*", "secrets", "events", "leases.coordination.k8s.io"} {
		args = append(args, "--resources", pattern)
	}
	var err error
	r.process, err = startChild(r.binary, append(args, r.flags...)...)
	return err
}

// ready returns an error until the copy of the cluster is complete.
func (r *replica) ready(ctx context.Context) error {
	if err := r.process.running(); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, r.binary, "kubeconfig", "--prefix", "", "--state-dir", r.stateDir()).Output()
	if err != nil {
		return fmt.Errorf("watershed kubeconfig: %w", err)
	}
	if !strings.Contains(string(out), "current-context: "+clusterName+"\n") {
		return errors.New("watershed kubeconfig: no clusters yet")
	}
	if err := os.WriteFile(r.kubeconfig(), out, 0o600); err != nil {
		return err
	}
	cfg, err := restConfig(r)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func (r *replica) kill() {
	r.process.kill()
	r.lines = append(r.lines, r.process.lines(0)...)
}

func (r *replica) stop() error { return r.process.stop() }

func (r *replica) complaints() []string {
	var found []string
	for _, line := range append(r.lines, r.process.lines(0)...) {
		if !strings.Contains(line, "level=INFO") {
			found = append(found, line)
		}
	}
	return found
}

// server is the cluster itself. Its log is not checked.
type server struct{ cluster *kubetest.Cluster }

func (s *server) kubeconfig() string { return s.cluster.Kubeconfig() }

func (s *server) start(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.cluster.APIServer.Start(soon)
}

func (s *server) kill() { s.cluster.APIServer.Kill() }

func (s *server) complaints() []string { return nil }
