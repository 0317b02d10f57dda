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
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// leased is the copy of a resource.
type leased struct {
	kube.Resource
	*watershed.Lease[*wire.Object]
}

// everything keeps a copy of all resources that the cluster serves, and prints the
// objects of one resource that a selector matches or, if resource is "", the number of
// objects of each.
func everything(
	ctx context.Context, out io.Writer, cluster *kube.Cluster, factory *watershed.Factory, resource, selector string,
) error {
	selected, err := labels.Parse(selector)
	if err != nil {
		return fmt.Errorf("selector %q: %w", selector, err)
	}
	all, err := leaseAll(ctx, cluster, factory)
	if err != nil {
		return err
	}
	if err := factory.WaitForSync(ctx); err != nil {
		return err
	}
	if resource == "" {
		return count(out, factory)
	}
	return query(out, all, resource, selected)
}

// leaseAll leases each resource that discovery lists. Objects do not need a Go type to
// be kept. The leases last as long as the factory.
func leaseAll(ctx context.Context, cluster *kube.Cluster, factory *watershed.Factory) ([]leased, error) {
	resources, err := cluster.Resources(ctx)
	if err != nil {
		return nil, err
	}
	var all []leased
	for _, r := range resources {
		if !r.Preferred || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			continue
		}
		lease, err := watershed.Shared[*wire.Object](factory,
			&watershed.SharedOptions[*wire.Object]{Resource: r.GroupVersionResource})
		if err != nil {
			return nil, err
		}
		all = append(all, leased{r, lease})
	}
	return all, nil
}

// query prints the objects of a resource that a selector matches.
func query(out io.Writer, all []leased, name string, selector labels.Selector) error {
	i := slices.IndexFunc(all, func(l leased) bool { return named(l.Resource, name) })
	if i < 0 {
		return fmt.Errorf("resource %q: the cluster does not serve it, or it cannot be watched", name)
	}
	found := all[i]
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tNAME\tVERSION")
	matches := 0
	snapshot := found.Snapshot()
	for _, obj := range snapshot.Select("", selector) {
		fmt.Fprintf(table, "%s\t%s\t%d\n", obj.Namespace(), obj.Name(), obj.Version())
		matches++
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "# %d of %d %s in the cache of %d resources\n", matches, snapshot.Len(), found.GroupResource(),
		len(all))
	return nil
}

// named reports whether a resource has a name, in one of the forms that kubectl accepts:
// deployments, deployments.apps, deployment, deploy or Deployment. If several resources
// have it, the first one in the server's order is used, as in kubectl.
func named(r kube.Resource, name string) bool {
	lower := strings.ToLower(name)
	return lower == r.Resource || lower == r.GroupResource().String() || lower == r.Singular ||
		lower == strings.ToLower(r.Kind) || slices.Contains(r.ShortNames, lower)
}

// count prints the number of objects of each resource.
func count(out io.Writer, factory *watershed.Factory) error {
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
