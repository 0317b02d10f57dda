// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command pipeline connects all five stages of a shared informer by hand: a source, the
// queue, the store with an index, the log, and two handlers. The source plays the events
// of a few pods or, with -cluster, is a reflector that lists and watches the pods of a
// cluster.
package main

import (
	"context"
	"flag"
	"io"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

func main() {
	var o options
	live := flag.Bool("cluster", false, "list and watch the pods of a cluster")
	flag.StringVar(&o.namespace, "namespace", "default", "with -cluster: the `namespace` of the pods")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:4000", "with -cluster: the `address` to answer queries of the index at")
	terminal.MainOptional(live, runPlayed, func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return runLive(ctx, out, cluster, o)
	})
}
