// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// ErrNotBuilt means that the binaries of Kubernetes are not on this machine.
var ErrNotBuilt = errors.New("the Kubernetes binaries are not built: run make kube first")

// Cluster is a running control plane.
type Cluster struct {
	Etcd      *Process
	APIServer *Process

	// These run only if [Options.Nodes] is set, and are nil otherwise.
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
	portCount
)

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
		return c.startNodes(ctx)
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

// WaitReady returns when the API server is ready. After etcd was down, that takes a
// while.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return poll(ctx, "kube-apiserver", c.apiReady)
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.opts.Name }

// Dir returns the folder with the cluster's data, logs and keys.
func (c *Cluster) Dir() string { return c.dir }

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
