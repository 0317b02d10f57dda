// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command watchdog builds a simple informer from its parts: a reflector, a queue, a
// store and one handler.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

func main() {
	namespace := flag.String("namespace", "default", "the `namespace` of the pods")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, *namespace)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, namespace string) error {
	source, err := cluster.Source(kube.Query{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: namespace,
	})
	if err != nil {
		return err
	}
	return newWatchdog(source, (*wire.Object).Key, wire.Same, printer(out, (*wire.Object).Name)).run(ctx)
}

// printer prints every call with the name of its object.
func printer[T any](out io.Writer, name func(T) string) handler[T] {
	return handler[T]{
		OnAdd: func(obj T, initial bool) {
			if initial {
				fmt.Fprintln(out, "OnAdd:", name(obj), "(was there)")
				return
			}
			fmt.Fprintln(out, "OnAdd:", name(obj))
		},
		OnUpdate: func(_, now T) { fmt.Fprintln(out, "OnUpdate:", name(now)) },
		OnDelete: func(last T) { fmt.Fprintln(out, "OnDelete:", name(last)) },
	}
}
