// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// RequiredVariable is the name of the environment variable that, if set to "required",
// makes tests fail that would be skipped because the binaries are not built.
const RequiredVariable = "WATERSHED_KUBE"

// ErrNotBuilt means that the binaries of Kubernetes are not on this machine.
var ErrNotBuilt = errors.New("the Kubernetes binaries are not built: run make kube first")

// startTimeout is long, because machines that run tests are busy.
const startTimeout = 2 * time.Minute

// Start starts a cluster for a test and ends it with the test. The test is skipped in
// short mode and if the binaries are not built; see [RequiredVariable]. nil options are
// the zero value.
func Start(tb testing.TB, opts *Options) *Cluster {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a real Kubernetes: not in short mode")
	}
	o := opts.withDefaults()
	if o.Dir == "" {
		// The folder is created before the cleanup below is registered, so it is removed
		// after the processes that write into it are gone.
		o.Dir = tb.TempDir()
	}
	// The API server collects garbage a quarter as often: a fifth less CPU in a start, for
	// 110 MB more memory. Benchmarks, which call New, measure a server as it is.
	o.env = append(o.env, "GOGC=400")
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	c, err := New(ctx, &o)
	if errors.Is(err, ErrNotBuilt) && os.Getenv(RequiredVariable) != "required" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("start cluster %s: %v", o.Name, err)
	}
	tb.Cleanup(func() {
		c.Close()
		if tb.Failed() {
			for _, p := range c.processes() {
				tb.Logf("cluster %s: the end of %s:\n%s", o.Name, p.Log(), p.Tail(tailBytes))
			}
		}
	})
	return c
}

// New starts a cluster and returns when it serves. ctx bounds the start, not the life of
// the cluster. After an error, nothing keeps running.
func New(ctx context.Context, opts *Options) (*Cluster, error) {
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	bin, err := binaries.Load()
	if err != nil {
		return nil, err
	}
	if missing := bin.Missing(); len(missing) > 0 {
		return nil, fmt.Errorf("%w (%s is missing)", ErrNotBuilt, missing[0])
	}
	c := &Cluster{opts: o, bin: bin, dir: o.Dir, died: make(chan error, 8)}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "kubetest-")
		if err != nil {
			return err
		}
		c.dir, c.ownsDir = dir, true
	}
	var err error
	if c.keys, err = writeKeys(c.dir); err != nil {
		return err
	}
	if err := c.writeTokens(); err != nil {
		return err
	}
	// A port that could not be reserved may be taken between choosing and using it. Then
	// all ports are chosen again.
	const attempts = 3
	for attempt := 1; ; attempt++ {
		err := c.startServers(ctx)
		if err == nil {
			break
		}
		if attempt == attempts || !errors.Is(err, errPortTaken) {
			return err
		}
		c.killAll()
		releasePorts(c.ports)
		if err := os.RemoveAll(c.etcdData()); err != nil {
			return err
		}
	}
	if c.opts.Nodes > 0 {
		return c.StartNodes(ctx, &Controllers{Nodes: c.opts.Nodes})
	}
	return nil
}

// startServers starts etcd and the API server, each on its own ports.
func (c *Cluster) startServers(ctx context.Context) error {
	var err error
	if c.ports, err = reservePorts(portCount); err != nil {
		return err
	}
	if err := WriteKubeconfig(c.Kubeconfig(), c); err != nil {
		return err
	}
	c.Etcd = c.newEtcd()
	c.APIServer = c.newAPIServer()
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	return c.APIServer.Start(ctx)
}

// reservePorts reserves n ports, or none.
func reservePorts(n int) ([]*port, error) {
	ports := make([]*port, 0, n)
	for range n {
		p, err := reservePort()
		if err != nil {
			releasePorts(ports)
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}
