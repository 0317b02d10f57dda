// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command controller is a complete controller. It keeps an annotation on every namespace
// that counts the pods of the namespace by phase. Handlers put the names of namespaces
// into client-go's work queue. Workers take them out, compute the annotation from
// snapshots, and write to the server only if the annotation is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"sync"
	"time"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

type options struct {
	workers int
	// qps limits the writes per second of all workers together.
	qps float64
	// drain limits how long the controller works on after Ctrl-C.
	drain time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.workers, "workers", 4, "how many namespaces to reconcile at the same time")
	flag.Float64Var(&o.qps, "qps", 20, "how many `writes` to send per second")
	flag.DurationVar(&o.drain, "drain", 5*time.Second, "how long to work on after Ctrl-C, at most")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, o)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	c, err := newController(out, cluster, o.qps)
	if err != nil {
		return err
	}
	return c.run(ctx, o)
}

// run runs the informers and the workers until ctx ends and the queue is drained.
func (c *controller) run(ctx context.Context, o options) error {
	// The informers outlive ctx: a stopped informer is empty, and workers must not
	// take an empty copy for an empty cluster while they drain the queue.
	informing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() { runErr = c.factory.Run(informing) })
	err := c.work(ctx, o)
	stop()
	wg.Wait()
	return errors.Join(err, runErr)
}

// work reconciles until ctx ends, and then drains the queue. What waits for a retry is
// not drained: the next run reconciles every namespace.
func (c *controller) work(ctx context.Context, o options) error {
	defer c.queue.ShutDown()
	for _, h := range c.handle() {
		defer h.Close()
		// Workers start when both copies are complete. Otherwise they would write
		// counts of the pods that have arrived so far.
		if err := h.WaitForSync(ctx); err != nil {
			return err
		}
	}
	c.say("# synced: %d namespaces, %d pods, %d workers", c.namespaces.Len(), c.pods.Len(), o.workers)

	// Work in progress outlives ctx too, but not for longer than o.drain.
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	var workers sync.WaitGroup
	for range o.workers {
		workers.Go(func() {
			for c.next(working) {
			}
		})
	}
	<-ctx.Done()
	c.say("# draining: %d namespaces are queued", c.queue.Len())
	deadline := time.AfterFunc(o.drain, abort)
	defer deadline.Stop()
	c.queue.ShutDownWithDrain()
	workers.Wait()
	c.say("# stopped")
	return nil
}
