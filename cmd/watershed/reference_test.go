// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watershed-project/watershed/cmd/watershed/internal/usage"
	"github.com/watershed-project/watershed/internal/expect"
)

// referenceFile is the page with all commands.
const referenceFile = "../../docs/reference/cli.md"

// TestReference compares the page with the commands.
func TestReference(t *testing.T) {
	t.Setenv("WATERSHED_STATE_DIR", "/not/a/default")
	t.Setenv("WATERSHED_DATA_DIR", "/not/a/default")
	root := newCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	b.WriteString(`# Command line reference

This page is generated: ` + "`go test ./cmd/watershed -run TestReference -update`" + ` writes it.
[configuration.md](../operations/configuration.md) explains the configuration file and the environment variables of serve.
`)
	for _, g := range root.Groups() {
		fmt.Fprintf(&b, "\n**%s**\n\n| command | what it does |\n|---|---|\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range commandsOf(root) {
			if c.GroupID == g.ID {
				fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.Name(), anchor(c), c.Short)
			}
		}
	}
	writeReference(&b, root)
	if *update {
		expect.NoError(t, os.WriteFile(referenceFile, []byte(b.String()), 0o644))
	}
	page, err := os.ReadFile(referenceFile)
	expect.NoError(t, err)
	if diff := cmp.Diff(string(page), b.String()); diff != "" {
		t.Errorf("%s is not current: run go test ./cmd/watershed -run TestReference -update\n%s", referenceFile, diff)
	}
}

// writeReference writes a command and those below it.
func writeReference(b *strings.Builder, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n", c.CommandPath(), text)
	if c.Runnable() {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", c.UseLine())
	}
	if c.HasExample() {
		fmt.Fprintf(b, "\nExamples:\n\n```text\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "),
			"\n  ", "\n"))
	}
	settings := c.Name() != "serve" && c.Flags().Lookup("config") != nil
	for _, s := range usage.Sections(c.LocalFlags()) {
		name := s.Name
		switch {
		case name == "":
			name = "Flags"
		case settings:
			continue // the sections of serve
		}
		fmt.Fprintf(b, "\n%s:\n\n| flag | default | meaning |\n|---|---|---|\n", name)
		s.Flags.VisitAll(func(f *pflag.Flag) { writeFlag(b, f) })
	}
	if settings {
		b.WriteString("\nIt also has the flags of [watershed serve](#watershed-serve).\n")
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(b, "\nIt also has the flags of [%s](#%s).\n", c.Parent().CommandPath(), anchor(c.Parent()))
	}
	for _, sub := range commandsOf(c) {
		writeReference(b, sub)
	}
}

// writeFlag writes a line of a table.
func writeFlag(b *strings.Builder, f *pflag.Flag) {
	value, text := pflag.UnquoteUsage(f)
	name := "`--" + f.Name
	if value != "" {
		name += " " + value
	}
	name += "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	byDefault := ""
	if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "false" {
		byDefault = "`" + f.DefValue + "`"
	}
	fmt.Fprintf(b, "| %s | %s | %s |\n", name, byDefault, strings.ReplaceAll(text, "|", `\|`))
}

// commandsOf returns the commands below a command that help shows.
func commandsOf(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub)
		}
	}
	return all
}

// anchor returns the anchor of the heading of a command.
func anchor(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// TestServe_flagsHaveSections checks that help shows each flag of serve below a heading.
func TestServe_flagsHaveSections(t *testing.T) {
	serve, _, err := newCommand().Find([]string{"serve"})
	expect.NoError(t, err)
	sections := usage.Sections(serve.Flags())
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		if usage.SectionOf(f) == "" {
			t.Errorf("--%s has no section: declare it in one of package settings, or call usage.SetSection", f.Name)
		}
	})
	if len(sections) < 5 {
		t.Errorf("there are %d sections", len(sections))
	}
	out, err := command(t.Context(), "serve", "--help")
	expect.NoError(t, err)
	for _, s := range sections {
		if s.Name == "" || !strings.Contains(out, "\n\n"+s.Name+":\n") || !strings.Contains(out, s.Text()) {
			t.Errorf("help does not have the section %q", s.Name)
		}
	}
}
