// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// pluginName is the name of the program as a plugin of kubectl. Kubectl runs it for
	// "kubectl watershed".
	pluginName = "kubectl-watershed"
	// pluginCompletionName is the name that kubectl runs to complete the plugin's arguments.
	pluginCompletionName = "kubectl_complete-watershed"
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
	names := []string{"completion"} // which cobra adds later
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.Long, c.Example = renamed(c.Long, name, names), renamed(c.Example, name, names)
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(cmd)
}

// renamed returns a text in which the commands with the given names have another name of the program.
func renamed(text, program string, names []string) string {
	for _, command := range names {
		text = strings.ReplaceAll(text, "watershed "+command, program+" "+command)
	}
	return text
}
