// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

type reflectorOptions struct {
	namespace string
	known     bool
}

// reflectPods is the step reflector: a reflector and a queue, and the deltas that leave the queue
// with and without known objects.
func reflectPods() {
	var o reflectorOptions
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` of the pods")
	flag.BoolVar(&o.known, "known", false,
		"store the objects that leave the queue, and use the store as the queue's known objects")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return runReflector(ctx, out, cluster, o)
	})
}

func runReflector(ctx context.Context, out io.Writer, cluster *kube.Cluster, o reflectorOptions) error {
	source, err := cluster.Source(kube.Query{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: o.namespace,
	})
	if err != nil {
		return err
	}
	pods := store.New((*wire.Object).Key, nil)
	var opts delta.Options[*wire.Object]
	if o.known {
		opts.Known = pods
	}
	fifo := delta.New((*wire.Object).Key, &opts)

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		// Failed requests are retried. Run returns an error only if it runs already.
		_ = reflector.New(source, fifo, nil).Run(ctx)
	})
	for {
		err := fifo.Pop(ctx, func(deltas delta.Deltas[*wire.Object], _ bool) error {
			for _, d := range deltas {
				pod, err := wire.Decode[*corev1.Pod](d.Object)
				if err != nil {
					return err
				}
				fmt.Fprintln(out, d.Type, ":", pod.Name, ":", pod.Status.Phase)
			}
			if o.known {
				pods.Apply(deltas)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("pop: %w", err)
		}
	}
}
