// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command fleet mirrors the clusters of all contexts in a kubeconfig. It prints the
// state of each cluster and the objects of one resource in all of them. With -watch it
// follows them while contexts, clusters and types come and go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/wire"
)

type options struct {
	kubeconfig, resource, selector string
	watch                          bool
	patience                       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "",
		"the `file` with the contexts (default: the files in KUBECONFIG, else ~/.kube/config)")
	flag.StringVar(&o.resource, "resource", "pods",
		"the `resource` to show: pods, deployments.apps, gadgets.example.com")
	flag.StringVar(&o.selector, "l", "", "a label `selector`")
	flag.BoolVar(&o.watch, "watch", false, "watch for changes until Ctrl-C")
	flag.DurationVar(&o.patience, "patience", 30*time.Second, "how long to wait for clusters that do not answer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Stdout, o); err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		slog.Error("fleet", "err", err)
		stop()
		os.Exit(1) //nolint:gocritic // what is deferred has been done
	}
}

func run(ctx context.Context, out io.Writer, o options) error {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("-l: %w", err)
	}
	contexts := &directory.KubeconfigOptions{}
	if o.kubeconfig != "" {
		contexts.Paths = []string{o.kubeconfig}
	}
	f, err := fleet.New(directory.NewKubeconfig(contexts), &fleet.Options{Resources: []string{o.resource}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		defer cancel()
		runErr = f.Run(ctx)
	})
	objects := fleet.OfResource[*wire.Object](f, schema.ParseGroupResource(o.resource))
	err = show(ctx, out, f, objects, selector, o)
	cancel()
	wg.Wait()
	return errors.Join(err, runErr)
}

func show(
	ctx context.Context, out io.Writer, f *fleet.Fleet, objects *fleet.View[*wire.Object], selector labels.Selector,
	o options,
) error {
	patient, cancel := context.WithTimeout(ctx, o.patience)
	err := f.WaitForSync(patient)
	cancel()
	if ctx.Err() != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tSTATE\tRESOURCES\tOBJECTS\tREASON")
	for _, m := range f.Members() {
		s := m.Status()
		reason := ""
		if s.Err != nil {
			reason = s.Err.Error()
		}
		fmt.Fprintf(table, "%s\t%s\t%d/%d\t%d/%d\t%s\n", m.Name(), s.State, s.Synced, s.Resources, s.Objects,
			s.Expected, reason)
	}
	fmt.Fprintln(table, "\nCLUSTER\tOBJECT\tVERSION")
	for key, obj := range objects.Snapshot().Select("", selector) {
		fmt.Fprintf(table, "%s\t%s\t%d\n", key.Cluster, key.Object, obj.Version())
	}
	if err := table.Flush(); err != nil || !o.watch {
		return err
	}
	fmt.Fprintln(out, "\n# watch")
	for c := range objects.Watch(ctx) {
		// For a deleted object, now is its last state. If an object has lost its
		// labels, the state before matches.
		old, now := c.Raw()
		if c.Initial || !selector.Matches(now.Labels()) && (old == nil || !selector.Matches(old.Labels())) {
			continue
		}
		fmt.Fprintf(out, "%-8s%s %d\n", c.Type, c.Key, now.Version())
	}
	return nil
}
