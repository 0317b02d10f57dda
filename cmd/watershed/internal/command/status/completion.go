// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
)

// completionTimeout limits how long the shell waits for names of clusters.
const completionTimeout = 2 * time.Second

// completeClusters completes the clusters of the running server, without those that are among
// the arguments.
func completeClusters(o *apiclient.ConnectionOptions) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := o.Open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		r, err := c.Report(ctx, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, one := range r.Clusters.Clusters {
			if !slices.Contains(args, one.Name) {
				names = append(names, one.Name+"\t"+one.State)
			}
		}
		return completion.Beginning(names, begin), cobra.ShellCompDirectiveNoFileComp
	}
}
