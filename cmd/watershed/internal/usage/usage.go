// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package usage prints the usage of commands. A command with many flags has them in sections: the
// declaration of a flag names its section with [SetSection], and [Print] has a heading for each.
package usage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// annotation is the annotation of a flag that has the name of its section.
	annotation = "watershed.dev/section"
	// columns limits the width of the lines about flags.
	columns = 110
)

// SetSection sets the section of a flag.
func SetSection(f *pflag.Flag, section string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[annotation] = []string{section}
}

// SectionOf returns the section of a flag, "" if it has none.
func SectionOf(f *pflag.Flag) string {
	if names := f.Annotations[annotation]; len(names) == 1 {
		return names[0]
	}
	return ""
}

// Section is the flags of a command under one heading.
type Section struct {
	// Name is "" for flags without a section.
	Name  string
	Flags *pflag.FlagSet
}

// Text returns a line or more for each flag.
func (s Section) Text() string { return s.Flags.FlagUsagesWrapped(columns) }

// Sections returns the sections of flags in the order of their first flags. The flags without a
// section come first.
func Sections(flags *pflag.FlagSet) []Section {
	var all []Section
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := SectionOf(f)
		i := slices.IndexFunc(all, func(s Section) bool { return s.Name == name })
		if i < 0 {
			set := pflag.NewFlagSet(name, pflag.ContinueOnError)
			set.SortFlags = flags.SortFlags
			i = len(all)
			if name == "" {
				i = 0
			}
			all = slices.Insert(all, i, Section{name, set})
		}
		all[i].Flags.AddFlag(f)
	})
	return all
}

// Print writes the usage of a command to its standard error, or to its output if help was requested.
// It is a function for [cobra.Command.SetUsageFunc].
func Print(c *cobra.Command) error {
	_, err := fmt.Fprint(c.OutOrStderr(), text(c))
	return err
}

// text returns the usage of a command.
func text(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	for _, g := range c.Groups() {
		writeCommands(&b, g.Title, c, g.ID)
	}
	switch {
	case len(c.Groups()) == 0:
		writeCommands(&b, "Commands:", c, "")
	case !c.AllChildCommandsHaveGroup():
		writeCommands(&b, "Other commands:", c, "")
	}
	for _, s := range Sections(c.LocalFlags()) {
		heading := "Flags"
		if s.Name != "" {
			heading = s.Name
		}
		fmt.Fprintf(&b, "\n%s:\n%s", heading, s.Text())
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(&b, "\nFlags of all commands below %s:\n%s", c.Parent().CommandPath(),
			c.InheritedFlags().FlagUsagesWrapped(columns))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
	return b.String()
}

// writeCommands writes the commands of a group.
func writeCommands(b *strings.Builder, title string, c *cobra.Command, group string) {
	began := false
	for _, sub := range c.Commands() {
		if sub.GroupID != group || !sub.IsAvailableCommand() && sub.Name() != "help" {
			continue
		}
		if !began {
			fmt.Fprintf(b, "\n%s\n", title)
			began = true
		}
		fmt.Fprintf(b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
	}
}
