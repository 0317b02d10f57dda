// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/output"
	"github.com/watershed-project/watershed/internal/document"
)

// changesLong and changesExample are the help text of changes.
const (
	changesLong = `Changes counts the changes of all objects in a period, grouped as you like: what was going on
before the incident, and which controller writes most. The largest numbers come first.

The server must store the past: watershed serve --data-dir. Your rights are those of now: you
need the right to get the path /changes, and only the resources are counted that you may list
in all namespaces.

` + apiclient.Help
	changesExample = `  watershed changes --since 1h --by cluster,kind,manager
  watershed changes --since 2026-11-17T06:00:00Z --until 2026-11-17T06:30:00Z --by namespace,type
  watershed changes --since 24h --by manager --cluster prod-eu -o json`
)

// changesOptions are the flags of changes.
type changesOptions struct {
	pastOptions
	since, until string
	by           []string
	most         int
}

// NewChangesCommand returns the command changes.
func NewChangesCommand() *cobra.Command {
	var o changesOptions
	cmd := newCommand("changes", "Count the changes of all objects", changesLong, changesExample, cobra.NoArgs, o.run)
	o.declare(cmd, output.Table)
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "1h", "the first `time`, or how long ago")
	flags.StringVar(&o.until, "until", "", "the last `time`, or how long ago (default now)")
	flags.StringSliceVar(&o.by, "by", []string{"cluster", "kind"},
		"what to group by: `cluster`, kind, namespace, type, manager")
	flags.IntVar(&o.most, "top", 30, "how many `lines` to show; 0 is all")
	return cmd
}

func (o *changesOptions) run(ctx context.Context, out, warn io.Writer, _ string) error {
	query := url.Values{"since": {o.since}, "by": {strings.ReplaceAll(strings.Join(o.by, ","), "kind", "resource")}}
	if o.until != "" {
		query.Set("until", o.until)
	}
	counts := map[document.ChangeCount]int{}
	err := o.answers(ctx, warn, func(client *pastClient, cluster string) error {
		var s document.ChangeSummary
		if err := client.get(ctx, root(cluster)+document.ChangesPath, query, &s); err != nil {
			return err
		}
		for _, n := range s.Items {
			count := n.Count
			n.Count = 0
			counts[n] += count
		}
		if cluster != "" {
			s.Clusters = []document.PartialCluster{{
				Name: cluster, Since: &s.Since, Hidden: s.Hidden, Missing: s.Missing,
			}}
		}
		explainPartial(warn, o.since, s.Clusters)
		explainUncounted(warn, s.Clusters)
		return nil
	})
	if err != nil {
		return err
	}
	if len(counts) == 0 {
		fmt.Fprintf(warn, "there are no changes %s\n", period(o.since, o.until))
	}
	return o.print(out, counts)
}

// explainUncounted says what is not counted in clusters that are not left out.
func explainUncounted(warn io.Writer, clusters []document.PartialCluster) {
	for _, c := range clusters {
		if c.Hidden > 0 {
			fmt.Fprintf(warn, "cluster %s: %d resources are left out: you may not list them, or the cluster did not "+
				"decide in time\n", c.Name, c.Hidden)
		}
		if c.Missing > 0 {
			fmt.Fprintf(warn, "cluster %s: changes are missing in the files at %d places\n", c.Name, c.Missing)
		}
	}
}

// columns are what can be shown, in the order of the table.
var changeColumns = []struct {
	by, head string
	value    func(*document.ChangeCount) string
}{
	{"cluster", "CLUSTER", func(c *document.ChangeCount) string { return c.Cluster }},
	{"kind", "KIND", func(c *document.ChangeCount) string { return c.Resource }},
	{"namespace", "NAMESPACE", func(c *document.ChangeCount) string { return c.Namespace }},
	{"type", "TYPE", func(c *document.ChangeCount) string { return c.Type }},
	{"manager", "MANAGER", func(c *document.ChangeCount) string { return c.Manager }},
}

// print writes the numbers, the largest first.
func (o *changesOptions) print(out io.Writer, counts map[document.ChangeCount]int) error {
	all := make([]document.ChangeCount, 0, len(counts))
	total := 0
	for c, n := range counts {
		c.Count = n
		total += n
		all = append(all, c)
	}
	slices.SortFunc(all, document.ChangeCount.Compare)
	if o.output.IsDocument() {
		return o.output.Write(out, items[document.ChangeCount]{all})
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "CHANGES")
	for _, c := range changeColumns {
		if slices.Contains(o.by, c.by) {
			fmt.Fprint(w, "\t", c.head)
		}
	}
	fmt.Fprintln(w)
	for i := range all {
		if o.most > 0 && i == o.most {
			break
		}
		fmt.Fprint(w, all[i].Count)
		for _, c := range changeColumns {
			if slices.Contains(o.by, c.by) {
				fmt.Fprint(w, "\t", cmp.Or(c.value(&all[i]), "-"))
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d changes, %d lines\n", total, len(all))
	return err
}
