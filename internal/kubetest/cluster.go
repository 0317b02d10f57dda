// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// Cluster is a running control plane.
type Cluster struct {
	Etcd      *Process
	APIServer *Process

	// These run only if [Options.Nodes] is set or after [Cluster.StartNodes], and are nil
	// otherwise.
	ControllerManager *Process
	Scheduler         *Process
	Kwok              *Process

	opts    Options
	bin     *binaries.Set
	dir     string
	ownsDir bool
	keys    *keys
	secret  []byte // tokens derive from it
	ports   []*port
	died    chan error // from the processes; see Wait

	closing sync.Once
}

// The indexes of a cluster's ports.
const (
	portEtcd = iota
	portEtcdPeer
	portAPIServer
	portKwok
	portCount
)

// Close kills all processes, waits until they are gone, and removes the folder if New
// created it. It may be called more than once.
func (c *Cluster) Close() {
	c.closing.Do(func() {
		c.killAll()
		releasePorts(c.ports)
		if c.ownsDir {
			_ = os.RemoveAll(c.dir)
		}
	})
}

// Wait returns nil when ctx ends, or an error when a component ends that was neither
// killed nor stopped.
func (c *Cluster) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.died:
		return fmt.Errorf("cluster %s: %w", c.opts.Name, err)
	}
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.opts.Name }

// Dir returns the folder with the cluster's data, logs and keys.
func (c *Cluster) Dir() string { return c.dir }

// EtcdURL returns the address at which etcd serves clients.
func (c *Cluster) EtcdURL() string { return "http://" + c.ports[portEtcd].addr() }

// URL returns the address of the API server.
func (c *Cluster) URL() string { return "https://" + c.ports[portAPIServer].addr() }

func (c *Cluster) etcdData() string { return filepath.Join(c.dir, "etcd") }

// processes returns the running processes, in the order in which they were started.
func (c *Cluster) processes() []*Process {
	var all []*Process
	for _, p := range []*Process{c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler, c.Kwok} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// killAll kills all processes in parallel: the order does not matter, because none of
// them is started again.
func (c *Cluster) killAll() {
	var all sync.WaitGroup
	for _, p := range c.processes() {
		all.Go(p.Kill)
	}
	all.Wait()
}

func (c *Cluster) process(cmd binaries.Command, ready func(context.Context) error, args ...string) *Process {
	return &Process{
		name:  cmd.Name,
		path:  cmd.Path,
		args:  args,
		log:   filepath.Join(c.dir, cmd.Name+".log"),
		ready: ready,
		died:  c.died,
	}
}
