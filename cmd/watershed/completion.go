// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/fleet/directory"
)

const (
	// pluginName is the name of the program as a plugin of kubectl. Kubectl runs it for
	// "kubectl watershed".
	pluginName = "kubectl-watershed"
	// pluginCompletionName is the name that kubectl runs to complete the plugin's arguments.
	pluginCompletionName = "kubectl_complete-watershed"
	// completionTimeout limits how long the shell waits for names of clusters.
	completionTimeout = 2 * time.Second
)

// invocation returns the name and the arguments of the program, by the name of its file: as a
// plugin it is called kubectl watershed.
func invocation(args []string) (name string, rest []string) {
	base := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	switch base {
	case pluginName:
		return "kubectl watershed", args[1:]
	case pluginCompletionName:
		return "kubectl watershed", append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return "watershed", args[1:]
}

// rename makes the texts of a command and of those below it use another name of the program.
func rename(cmd *cobra.Command, name string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[cobra.CommandDisplayNameAnnotation] = name
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.Long, c.Example = renamed(c.Long, name), renamed(c.Example, name)
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(cmd)
}

// renamed returns a text whose commands have another name of the program.
func renamed(text, name string) string {
	for _, command := range []string{"serve", "status", "check", "kubeconfig", "rbac", "version", "completion"} {
		text = strings.ReplaceAll(text, "watershed "+command, name+" "+command)
	}
	return text
}

// completion returns the values that a flag or an argument can have.
type completion func(cmd *cobra.Command) []string

// completeFlag makes a shell complete the values of a flag.
func completeFlag(cmd *cobra.Command, flag string, values completion) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return beginning(values(cmd), begin), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist
	}
}

// beginning returns the values that begin with a text.
func beginning(values []string, begin string) []string {
	return slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, begin) })
}

// fixed completes given values.
func fixed(values ...string) completion {
	return func(*cobra.Command) []string { return slices.Clone(values) }
}

// contextNames completes the contexts of the kubeconfig that the flag --kubeconfig names, or
// that kubectl reads.
func contextNames(cmd *cobra.Command) []string {
	opts := &directory.KubeconfigOptions{}
	if f := cmd.Flags().Lookup("kubeconfig"); f != nil && f.Value.String() != "" {
		opts.Paths = []string{f.Value.String()}
	}
	found, err := directory.NewKubeconfig(opts).Read()
	if err != nil {
		return nil
	}
	var names []string
	for _, c := range found {
		names = append(names, c.Name)
	}
	return names
}

// completeClusters completes the clusters of the running server, without those that are among
// the arguments.
func completeClusters(o *connectionOptions) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := o.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.close()
		r, err := c.report(ctx, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, one := range r.Clusters.Clusters {
			if !slices.Contains(args, one.Name) {
				names = append(names, one.Name+"\t"+one.State)
			}
		}
		return beginning(names, begin), cobra.ShellCompDirectiveNoFileComp
	}
}
