// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// everything keeps a copy of all resources that the cluster serves. Each resource that
// discovery lists can be leased, and objects do not need a Go type to be kept.
func everything(ctx context.Context, out io.Writer, cluster *kube.Cluster, factory *watershed.Factory) error {
	resources, err := cluster.Resources(ctx)
	if err != nil {
		return err
	}
	for _, r := range resources {
		if !r.Preferred || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			continue
		}
		lease, err := watershed.Shared[*wire.Object](factory, &watershed.Options[*wire.Object]{Resource: r.GroupVersionResource})
		if err != nil {
			return err
		}
		defer lease.Release()
	}
	if err := factory.WaitForSync(ctx); err != nil {
		return err
	}
	status := factory.Status()
	empty := 0
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tOBJECTS\tVERSION")
	for resource, all := range sorted(status) {
		for _, s := range all {
			if s.Objects == 0 {
				empty++
				continue
			}
			fmt.Fprintf(table, "%s\t%d\t%d\n", resource, s.Objects, s.Version)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "# runs %d informers, %d of them without objects\n", len(status), empty)
	return nil
}

// sorted yields the informers of each resource, sorted by the resource's name.
func sorted(status map[schema.GroupVersionResource][]watershed.Status) iter.Seq2[string, []watershed.Status] {
	return func(yield func(string, []watershed.Status) bool) {
		keys := slices.SortedFunc(maps.Keys(status), func(a, b schema.GroupVersionResource) int {
			return cmp.Compare(a.GroupResource().String(), b.GroupResource().String())
		})
		for _, key := range keys {
			if !yield(key.GroupResource().String(), status[key]) {
				return
			}
		}
	}
}
