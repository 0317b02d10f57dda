// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command pipeline connects all five stages of a shared informer by hand: a source, the
// queue, the store with an index, the log, and two handlers. The source plays the events
// of a few pods or, with -cluster, is a reflector that lists and watches the pods of a
// cluster.
//
// With the name of a step it shows one stage alone, and has the flags of that step:
//
//	pipeline deltafifo   the queue: deltas grouped by key, known objects, lists and resyncs
//	pipeline listwatch   the two requests, selectors, a tweak
//	pipeline reflector   a reflector and a queue
//	pipeline indexer     a store, namespaces, an index on a label
//	pipeline listener    one log, many readers
//
// listwatch and reflector need a cluster.
package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

// steps show one stage each.
var steps = map[string]func(){
	"deltafifo": deltaFIFO,
	"listwatch": listWatch,
	"reflector": reflectPods,
	"indexer":   indexer,
	"listener":  listeners,
}

func main() {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		whole()
		return
	}
	name := os.Args[1]
	show, ok := steps[name]
	if !ok {
		slog.Error("no such step", "step", name, "steps", slices.Sorted(maps.Keys(steps)))
		os.Exit(2)
	}
	os.Args = slices.Delete(os.Args, 1, 2)
	show()
}

// whole connects all stages.
func whole() {
	var o options
	live := flag.Bool("cluster", false, "list and watch the pods of a cluster")
	flag.StringVar(&o.namespace, "namespace", "default", "with -cluster: the `namespace` of the pods")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:4000",
		"with -cluster: the `address` to answer queries of the index at")
	terminal.MainOptional(live, runPlayed, func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return runLive(ctx, out, cluster, o)
	})
}
