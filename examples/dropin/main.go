// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command dropin runs four small client-go programs, as tutorials show them, with
// client-go's informers or with Watershed's. The programs are the same; only the
// constructors differ.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

type options struct {
	program, with, namespace, app string
}

var programs = map[string]func(context.Context, *program) error{
	"informer": informer,
	"indexer":  indexerInformer,
	"shared":   sharedInformer,
	"factory":  informerFactory,
}

func main() {
	var o options
	names := strings.Join(slices.Sorted(maps.Keys(programs)), ", ")
	flag.StringVar(&o.program, "program", "informer", "the `name` of the program: "+names)
	flag.StringVar(&o.with, "with", "compat", "the `package` of the informers: compat or client-go")
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` to read")
	flag.StringVar(&o.app, "app", "web", "the `label` app of the pods that the program indexer finds")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, o)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	start, ok := programs[o.program]
	if !ok {
		return fmt.Errorf("program %q: not one of %s", o.program,
			strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	}
	with, ok := packages[o.with]
	if !ok {
		return fmt.Errorf("package %q: neither compat nor client-go", o.with)
	}
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return err
	}
	return start(ctx, &program{
		constructors: with, client: client, namespace: o.namespace, app: o.app,
		out: &lines{out: out},
	})
}
