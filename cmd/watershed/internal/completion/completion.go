// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package completion completes the values of flags in a shell.
package completion

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/fleet/directory"
)

// Values returns the values that a flag or an argument can have.
type Values func(cmd *cobra.Command) []string

// Flag makes a shell complete the values of a flag.
func Flag(cmd *cobra.Command, flag string, values Values) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]string,
		cobra.ShellCompDirective) {
		return Beginning(values(cmd), begin), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist
	}
}

// Beginning returns the values that begin with a text.
func Beginning(values []string, begin string) []string {
	return slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, begin) })
}

// Fixed completes given values.
func Fixed(values ...string) Values {
	return func(*cobra.Command) []string { return slices.Clone(values) }
}

// Contexts completes the contexts of the kubeconfig that the flag --kubeconfig names, or
// that kubectl reads.
func Contexts(cmd *cobra.Command) []string {
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
