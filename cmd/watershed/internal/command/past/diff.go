// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/jsondiff"
)

// diffLong and diffExample are the help text of diff.
const (
	diffLong = `Diff shows how objects differ between two times: which ones came and went, and which fields of
the others differ. With one --at it compares with now.

The server must store the past: watershed serve --data-dir. Your rights are those of now.

` + apiclient.Help
	diffExample = `  watershed diff deployment/cart -n shop --at 2h
  watershed diff configmaps -n shop --at 2026-11-17T06:00:00Z --at 2026-11-17T07:00:00Z
  watershed diff nodes --at 30m --cluster prod-eu`
)

// diffOptions are the flags of diff.
type diffOptions struct {
	logOptions
	at []string
}

// NewDiffCommand returns the command diff.
func NewDiffCommand() *cobra.Command {
	var o diffOptions
	cmd := newCommand("diff KIND[/NAME] --at TIME [--at TIME]", "Show how objects differ between two times", diffLong,
		diffExample, cobra.ExactArgs(1), o.compare)
	o.addFlags(cmd)
	cmd.Flags().StringArrayVar(&o.at, "at", nil,
		"a `time`, or how long ago; once or twice (default for the second is now)")
	return cmd
}

// compare compares the objects of all clusters, and prints the differences.
func (o *diffOptions) compare(ctx context.Context, out, warn io.Writer, text string) error {
	if len(o.at) < 1 || len(o.at) > 2 {
		return errors.New("use --at once or twice")
	}
	found := []logged{}
	err := o.each(ctx, warn, func(client *pastClient, cluster string) error {
		differing, err := o.differ(ctx, client, cluster, text)
		found = append(found, differing...)
		return err
	})
	if err != nil {
		return err
	}
	if o.output.IsDocument() {
		return o.output.Write(out, items[logged]{found})
	}
	b := bufio.NewWriter(out)
	for i := range found {
		o.printObject(b, &found[i])
	}
	return b.Flush()
}

// differ returns the objects of a cluster that differ.
func (o *diffOptions) differ(ctx context.Context, client *pastClient, cluster, text string) ([]logged, error) {
	s, err := client.find(cluster, o.namespace, text)
	if err != nil {
		return nil, err
	}
	var states [2]map[string]map[string]any
	for i := range states {
		query := url.Values{}
		if i < len(o.at) {
			query.Set("at", o.at[i])
		}
		if states[i], err = client.objects(ctx, cluster, s, query); err != nil {
			return nil, err
		}
	}
	keys := maps.Clone(states[0])
	maps.Copy(keys, states[1])
	var all []logged
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		c := logged{Resource: s.resource, Change: document.Change{Cluster: cluster, Name: key}}
		old, now := states[0][key], states[1][key]
		switch {
		case old == nil:
			c.Type = "ADDED"
		case now == nil:
			c.Type = "DELETED"
		default:
			c.Type = "MODIFIED"
			if c.Differences, err = jsondiff.Compare(old, now); err != nil {
				return nil, err
			}
			if len(c.Differences) == 0 {
				continue
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// objects returns the objects of a subject by namespace and name.
func (c *pastClient) objects(
	ctx context.Context, cluster string, s subject, query url.Values,
) (map[string]map[string]any, error) {
	if s.name != "" {
		query.Set("fieldSelector", "metadata.name="+s.name)
	}
	var list struct{ Items []json.RawMessage }
	if err := c.get(ctx, root(cluster)+s.list, query, &list); err != nil {
		return nil, err
	}
	all := map[string]map[string]any{}
	for _, raw := range list.Items {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, err
		}
		fields, err := jsondiff.Object(raw)
		if err != nil {
			return nil, err
		}
		key := o.Name
		if o.Namespace != "" {
			key = o.Namespace + "/" + key
		}
		all[key] = fields
	}
	return all, nil
}

// printObject writes the differences of an object.
func (o *diffOptions) printObject(b *bufio.Writer, c *logged) {
	fmt.Fprintf(b, "%s %s %s in %s\n", changeWords[c.Type], c.Resource, c.Name, c.Cluster)
	for _, d := range c.Differences {
		o.printDifference(b, d)
	}
}
