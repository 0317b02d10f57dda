// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command traps tries the two traps that informers are known for: objects that have
// lost their apiVersion and kind, and a stopped informer that keeps its memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

func main() {
	var o options
	flag.IntVar(&o.objects, "objects", 40, "how many config maps to make, in a namespace of their own")
	flag.IntVar(&o.size, "size", 500_000, "how many `bytes` each of them has")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, o)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	fmt.Fprintln(out, "# an object has apiVersion and kind, however it is read")
	if err := kinds(ctx, out, cluster); err != nil {
		return fmt.Errorf("kinds: %w", err)
	}
	fmt.Fprintln(out, "# a stopped informer keeps no objects, and can be started again")
	if err := memory(ctx, out, cluster, o); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return nil
}
