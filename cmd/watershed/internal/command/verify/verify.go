// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package verify is the command watershed verify: it makes a server compare its copies with their
// clusters.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/workqueue"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/output"
	"github.com/watershed-project/watershed/cmd/watershed/internal/status"
	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
)

// clustersAtOnce is how many clusters verify compares at once. It is below the limit of the
// server, so that others can verify too.
const clustersAtOnce = 3

// options are the flags of verify.
type options struct {
	apiclient.Options
	spec   verification.Spec
	output output.Format
}

// long and example are the help text of verify.
const (
	long = `Verify compares the copies of a running server with their clusters: every object of each
resource, by key, UID and version, at one exact resourceVersion. The cluster sends only the
metadata of the objects, in pages, and no faster than its budget allows.

A divergence is an object that is missing from the copy, extra in it (it does not exist in
the cluster), stale (an older version), ahead (a newer version, after a restore of etcd that
was not detected) or wrong (the same version, but another object). --deep compares the
content of the objects too, for which the cluster sends them whole.

--repair makes the server list a resource again whose copy differs, and compares once more.
Watches of clients see the corrections as ordinary events.

--replicas compares the copies with the copies of the other replicas of the group instead (serve
--group-listen), at the newest version that both have. The clusters are not asked. The other replica
has the role of the cluster: an object that it has is missing here, and one that it does not
have is extra. Replicas tell each other no names, so verify through the other replica, or
without --replicas, names the objects that are missing here.

The exit code is 1 if a copy differs, even if it was repaired, or could not be compared. A
resource that was never read is not compared, nor is a cluster.

` + apiclient.Help + `

Unless you are the owner of the server, each cluster must allow you to create
verifications.watershed.dev.`
	example = `  watershed verify
  watershed verify --cluster prod-eu --resource pods --resource deployments.apps
  watershed verify --deep --repair
  watershed verify --replicas
  watershed verify --context watershed-fleet -o json`
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "verify",
		Short:   "Compare the copies of a server with their clusters",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.AddFlags(cmd)
	flags := cmd.Flags()
	o.AddClusterFlag(cmd, &o.spec.Clusters)
	flags.StringArrayVar(&o.spec.Resources, "resource", nil,
		"a `resource` to verify, such as pods or deployments.apps; may be repeated (default all)")
	flags.BoolVar(&o.spec.Deep, "deep", false, "compare the content of the objects too")
	flags.BoolVar(&o.spec.Repair, "repair", false, "list a resource again if its copy differs")
	flags.BoolVar(&o.spec.Replicas, "replicas", false,
		"compare with the other replicas of the group, not with the clusters")
	o.output.AddFlag(cmd, output.Table)
	return cmd
}

// run compares, and prints the results.
func (o *options) run(ctx context.Context, out io.Writer) error {
	server, err := o.Open()
	if err != nil {
		return err
	}
	defer server.Close()
	client := verifyClient{server}
	plan, err := client.create(ctx, o.spec, true)
	if err != nil {
		return err
	}
	if len(plan) == 0 {
		return errors.New("verify: nothing to compare: no cluster that you may verify has a copy")
	}
	report := newVerifyReport(out, plan, &o.output)
	o.compare(ctx, client, plan, report)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return report.end()
}

// compare requests each comparison of the plan: those of one cluster one after the other,
// so that results appear while the others run.
func (o *options) compare(ctx context.Context, client verifyClient, plan []verification.Result, report *verifyReport) {
	byCluster := map[string][]verification.Result{}
	for _, p := range plan {
		byCluster[p.Cluster] = append(byCluster[p.Cluster], p)
	}
	clusters := slices.Sorted(maps.Keys(byCluster))
	workqueue.ParallelizeUntil(context.Background(), clustersAtOnce, len(clusters), func(i int) {
		for _, p := range byCluster[clusters[i]] {
			if p.Resource == verification.AllResources {
				report.add(p) // there is nothing to request
				continue
			}
			spec := o.spec
			spec.Clusters = []string{p.Cluster}
			spec.Resources = []string{p.Resource}
			results, err := client.create(ctx, spec, false)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				p.Error = err.Error()
				results = []verification.Result{p}
			}
			for _, one := range results {
				report.add(one)
			}
		}
	})
}

// verifyReport prints results as they arrive or, as a document, at the end.
type verifyReport struct {
	out    io.Writer
	format *output.Format
	// clusters and resources are the widths of columns.
	clusters, resources int

	// mu guards results.
	mu      sync.Mutex
	results []verification.Result
}

func newVerifyReport(out io.Writer, plan []verification.Result, format *output.Format) *verifyReport {
	r := &verifyReport{out: out, format: format, clusters: len("CLUSTER"), resources: len("RESOURCE")}
	for _, p := range plan {
		r.clusters, r.resources = max(r.clusters, len(p.Cluster)), max(r.resources, len(p.Resource))
	}
	if !format.IsDocument() {
		r.line("CLUSTER", "RESOURCE", "VERSION", "OBJECTS", "TIME", "DIVERGENCES")
	}
	return r
}

func (r *verifyReport) line(cluster, resource, version, objects, took, divergences string) {
	fmt.Fprintf(r.out, "%-*s   %-*s   %-10s   %8s   %8s   %s\n", r.clusters, cluster, r.resources, resource, version,
		objects, took, divergences)
}

// add prints a result.
func (r *verifyReport) add(one verification.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, one)
	if r.format.IsDocument() {
		return
	}
	with := ""
	if one.Replica != "" {
		with = one.Replica + ": "
	}
	if one.Error != "" {
		r.line(one.Cluster, one.Resource, "-", "-", "-", with+"not compared: "+one.Error)
		return
	}
	took := time.Duration(one.Seconds * float64(time.Second)).Round(time.Millisecond)
	r.line(one.Cluster, one.Resource, one.Version, fmt.Sprint(one.Objects), took.String(), with+verdict(&one))
	for _, e := range one.Examples {
		fmt.Fprintf(r.out, "    %-7s %s (%s %s, copy %s)\n", e.Kind, cmp.Or(e.Key, "an object without a name here"),
			cmp.Or(one.Replica, "cluster"), cmp.Or(e.Cluster, "none"), cmp.Or(e.Copy, "none"))
	}
	if more := one.Diverged() - len(one.Examples); more > 0 {
		fmt.Fprintf(r.out, "    and %d more\n", more)
	}
}

// verdict returns the divergences of a result on one line.
func verdict(r *verification.Result) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(r.Divergences)) {
		all = append(all, fmt.Sprintf("%d %s", r.Divergences[kind], kind))
	}
	if len(all) == 0 {
		all = append(all, "none")
	}
	if r.Undecided > 0 {
		all = append(all, fmt.Sprintf("%d not decided", r.Undecided))
	}
	switch {
	case r.Remaining == nil:
	case *r.Remaining == 0:
		all = append(all, "repaired")
	default:
		all = append(all, fmt.Sprintf("%d left after the repair", *r.Remaining))
	}
	return strings.Join(all, ", ")
}

// end prints the rest, and returns an error if a copy differs or was not compared.
func (r *verifyReport) end() error {
	if r.format.IsDocument() {
		slices.SortFunc(r.results, func(a, b verification.Result) int {
			return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Resource, b.Resource),
				strings.Compare(a.Replica, b.Replica))
		})
		if err := r.format.Write(r.out, verification.Status{Results: r.results}); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	objects := 0
	differ := 0
	failed := 0
	divergences := 0
	for i := range r.results {
		one := &r.results[i]
		objects += one.Objects
		if n := one.Diverged(); n > 0 {
			differ++
			divergences += n
		}
		if one.Error != "" {
			failed++
		}
	}
	switch {
	case differ > 0 && failed > 0:
		return fmt.Errorf("verify: differences in %s, in %d of %s; %s not compared",
			status.Counted(divergences, "object"), differ, copies(len(r.results)), copies(failed))
	case differ > 0:
		return fmt.Errorf("verify: differences in %s, in %d of %s", status.Counted(divergences, "object"), differ,
			copies(len(r.results)))
	case failed > 0:
		return fmt.Errorf("verify: %d of %s not compared", failed, copies(len(r.results)))
	}
	if !r.format.IsDocument() {
		fmt.Fprintf(r.out, "\n%s in %s: no divergence\n", status.Counted(objects, "object"), copies(len(r.results)))
	}
	return nil
}

// copies returns a number of copies with its noun.
func copies(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}
