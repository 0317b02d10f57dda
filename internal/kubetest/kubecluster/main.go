// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command kubecluster runs complete Kubernetes clusters on this machine until
// it is interrupted: control plane, scheduler, controllers and simulated nodes
// on which pods become Running without anything being run. It needs the
// binaries that kubebuild builds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest"
)

type options struct {
	clusters int
	nodes    int
}

func main() {
	var o options
	flag.IntVar(&o.clusters, "n", 1, "number of `clusters`")
	flag.IntVar(&o.nodes, "nodes", 3, "number of `nodes` in each cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "kubecluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.clusters < 1 || o.nodes < 1 {
		return errors.New("at least one cluster and one node are needed")
	}
	dir, err := os.MkdirTemp("", "watershed-clusters-")
	if err != nil {
		return err
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "kubecluster:", err)
			return
		}
		fmt.Println("removed", dir)
	}()

	var clusters []*kubetest.Cluster
	defer func() {
		if len(clusters) == 0 {
			return
		}
		for _, c := range clusters {
			c.Close()
		}
		fmt.Println("stopped", plural(len(clusters), "cluster"))
	}()
	begin := time.Now()
	for i := range o.clusters {
		c, err := start(ctx, dir, i+1, o.nodes)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		clusters = append(clusters, c)
		fmt.Printf("%s is ready at %s with %s\n  kubeconfig: %s\n  try:        %s --kubeconfig %s get nodes\n",
			c.Name(), c.URL(), plural(o.nodes, "node"), c.Kubeconfig(), c.KubectlPath(), c.Kubeconfig())
	}
	if len(clusters) > 1 {
		merged := filepath.Join(dir, "kubeconfig")
		if err := kubetest.WriteKubeconfig(merged, clusters...); err != nil {
			return err
		}
		fmt.Printf("all of them, a context each\n  kubeconfig: %s\n  try:        %s --kubeconfig %s --context %s get "+
			"nodes\n",
			merged, clusters[0].KubectlPath(), merged, clusters[len(clusters)-1].Name())
	}
	fmt.Printf("started in %s; Ctrl-C stops and removes everything\n", time.Since(begin).Round(100*time.Millisecond))
	return wait(ctx, clusters)
}

func start(ctx context.Context, dir string, number, nodes int) (*kubetest.Cluster, error) {
	name := fmt.Sprintf("cluster-%d", number)
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	fmt.Println("starting", name)
	c, err := kubetest.New(ctx, &kubetest.Options{Name: name, Dir: dir, Nodes: nodes})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// wait returns when ctx ends, or with an error when a component of any cluster
// ends by itself.
func wait(ctx context.Context, clusters []*kubetest.Cluster) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(clusters))
	var all sync.WaitGroup
	for i, c := range clusters {
		all.Go(func() {
			defer cancel()
			errs[i] = c.Wait(ctx)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
