// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/output"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/jsondiff"
)

// logLong and logExample are the help text of log.
const (
	logLong = `Log shows the changes of an object, the newest first: when each arrived, which field manager
made it, and the fields that differ. The object may be deleted meanwhile. Without a name it
shows the changes of all objects of the kind in the namespace.

The server must store the past: watershed serve --data-dir. It answers as far back as
--data-retention and --data-max-size allow. Your rights are those of now.

An API server records the manager of a change by the second. If several wrote within the same
one, all that may have made the change are shown. A deletion has no manager.

` + apiclient.Help
	logExample = `  watershed log deployment/cart -n shop
  watershed log pods -n shop --since 15m --cluster prod-eu
  watershed log node/worker-7 --since 2026-11-17T06:00:00Z --until 2026-11-17T07:00:00Z
  watershed log configmap/settings -o json`
)

// logOptions are the flags of log.
type logOptions struct {
	pastOptions
	since, until string
	full         bool
}

// NewLogCommand returns the command log.
func NewLogCommand() *cobra.Command {
	var o logOptions
	cmd := newCommand("log KIND[/NAME]", "Show the changes of an object", logLong, logExample, cobra.ExactArgs(1),
		o.run)
	o.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "24h", "the first `time`, or how long ago")
	flags.StringVar(&o.until, "until", "", "the last `time`, or how long ago (default now)")
	return cmd
}

// addFlags adds the flags about one object, which diff has too.
func (o *logOptions) addFlags(cmd *cobra.Command) {
	o.declare(cmd, output.Text)
	flags := cmd.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "default",
		"the `namespace` of the object, for kinds that have one")
	flags.BoolVar(&o.full, "full", false, "show long values completely")
}

// items is the document of a command that reads the past.
type items[T any] struct {
	Items []T `json:"items"`
}

// logged is a change with its resource.
type logged struct {
	Resource string `json:"resource"`
	document.Change
}

func (o *logOptions) run(ctx context.Context, out, warn io.Writer, text string) error {
	query := url.Values{"changes": {o.since}}
	if o.until != "" {
		query.Set("until", o.until)
	}
	all := []logged{} // the document has a list also if there are none
	err := o.answers(ctx, warn, func(client *pastClient, cluster string) error {
		changes, err := o.changes(ctx, client, cluster, text, query, warn)
		all = append(all, changes...)
		return err
	})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if err := o.explainNone(ctx, warn, text); err != nil {
			return err
		}
	}
	slices.SortStableFunc(all, func(a, b logged) int { return b.Time.Compare(a.Time) })
	return o.print(out, all)
}

// explainNone says on warn that there are no changes. It returns an error if no cluster has the
// object now either: its name is probably wrong.
func (o *logOptions) explainNone(ctx context.Context, warn io.Writer, text string) error {
	err := o.answers(ctx, io.Discard, func(client *pastClient, cluster string) error {
		s, err := client.find(cluster, o.namespace, text)
		if err != nil || s.name == "" {
			return err
		}
		var list struct{ Items []json.RawMessage }
		err = client.get(ctx, root(cluster)+s.list, url.Values{"fieldSelector": {"metadata.name=" + s.name}}, &list)
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("%s %q not found", s.resource, s.name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("log of %s: there are no changes %s, and it cannot be read now: %w", text,
			period(o.since, o.until), err)
	}
	fmt.Fprintf(warn, "%s: there are no changes %s\n", text, period(o.since, o.until))
	return nil
}

// period returns the time between two values of flags for a message, each a time or how long ago. The second may
// be "", which is now.
func period(since, until string) string {
	point := func(text string) string {
		if _, err := time.ParseDuration(text); err == nil {
			return text + " ago"
		}
		return text
	}
	switch start := point(since); {
	case until != "":
		return "between " + start + " and " + point(until)
	case start != since:
		return "in the last " + since
	}
	return "since " + since
}

// changes returns the changes in a cluster, or in all clusters if the cluster is "".
func (o *logOptions) changes(
	ctx context.Context, client *pastClient, cluster, text string, query url.Values, warn io.Writer,
) ([]logged, error) {
	s, err := client.find(cluster, o.namespace, text)
	if err != nil {
		return nil, err
	}
	var list document.ChangeList
	if err := client.get(ctx, root(cluster)+s.path, query, &list); err != nil {
		return nil, err
	}
	if cluster != "" {
		list.Clusters = []document.PartialCluster{{Name: cluster, Since: &list.Since}}
	}
	explainPartial(warn, o.since, list.Clusters)
	var all []logged
	for _, c := range list.Items {
		c.Cluster = cmp.Or(c.Cluster, cluster)
		all = append(all, logged{s.resource, c})
	}
	slices.Reverse(all) // the newest first, also those of the same time
	return all, nil
}

// explainPartial says which clusters are left out, and which have less than the period since a time.
func explainPartial(warn io.Writer, since string, clusters []document.PartialCluster) {
	requested, err := sinceTime(since)
	for _, c := range clusters {
		if c.Message != "" {
			fmt.Fprintf(warn, "cluster %s is left out: %s\n", c.Name, printable(c.Message))
		}
		if err == nil && c.Since != nil && c.Since.After(requested.Add(time.Second)) {
			fmt.Fprintf(warn, "cluster %s: the past begins at %s\n", c.Name, c.Since.Local().Format(time.DateTime))
		}
	}
}

// sinceTime returns a time that is given as a time or as how long ago it was.
func sinceTime(text string) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		return time.Now().Add(-ago), nil
	}
	return time.Parse(time.RFC3339, text)
}

// print writes the changes.
func (o *logOptions) print(out io.Writer, all []logged) error {
	if o.output.IsDocument() {
		return o.output.Write(out, items[logged]{all})
	}
	b := bufio.NewWriter(out)
	for i := range all {
		if i > 0 {
			fmt.Fprintln(b)
		}
		o.printChange(b, &all[i])
	}
	return b.Flush()
}

var changeWords = map[string]string{"ADDED": "created", "MODIFIED": "changed", "DELETED": "deleted"}

func (o *logOptions) printChange(b *bufio.Writer, c *logged) {
	if c.Type == "MISSING" {
		fmt.Fprintf(b, "changes of %s in %s are missing here: %s\n", c.Resource, c.Cluster, c.Message)
		return
	}
	key := c.Name
	if c.Namespace != "" {
		key = c.Namespace + "/" + key
	}
	fmt.Fprintf(b, "%s %s %s in %s, version %s\n", changeWords[c.Type], c.Resource, key, c.Cluster, c.ResourceVersion)
	fmt.Fprintf(b, "Time:    %s", c.Time.Local().Format("2006-01-02 15:04:05.000"))
	if c.Relisted {
		fmt.Fprint(b, ", or some time before: the watch was interrupted")
	}
	fmt.Fprintln(b)
	if len(c.Managers) > 0 {
		fmt.Fprintf(b, "Manager: %s\n", printable(strings.Join(c.Managers, " or ")))
	}
	if c.Unknown {
		fmt.Fprint(b, "\n    the state before is not known\n")
	}
	if c.Message != "" {
		fmt.Fprintf(b, "\n    %s\n", c.Message)
	}
	if len(c.Differences) > 0 {
		fmt.Fprintln(b)
	}
	for _, d := range c.Differences {
		o.printDifference(b, d)
	}
}

func (o *logOptions) printDifference(b *bufio.Writer, d jsondiff.Difference) {
	path := printable(d.Path)
	switch old, now := o.value(d.Old), o.value(d.New); {
	case d.Old == nil:
		fmt.Fprintf(b, "    + %s: %s\n", path, now)
	case d.New == nil:
		fmt.Fprintf(b, "    - %s: %s\n", path, old)
	default:
		fmt.Fprintf(b, "    %s: %s -> %s\n", path, old, now)
	}
}

// maxValue is how much of a value is shown.
const maxValue = 100

// value returns a value for people.
func (o *logOptions) value(raw json.RawMessage) string {
	text := []rune(string(raw))
	if o.full || len(text) <= maxValue {
		return printable(string(text))
	}
	return fmt.Sprintf("%s... (%d characters)", printable(string(text[:maxValue])), len(text))
}
