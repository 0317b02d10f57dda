// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package usage_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/usage"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestPrint prints flags in sections, and commands in groups.
func TestPrint(t *testing.T) {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool", Short: "A tool"}
	root.SetUsageFunc(usage.Print)
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run it:"})
	root.PersistentFlags().Bool("loud", false, "print more")
	serve := &cobra.Command{Use: "serve NAME", Short: "Serve", GroupID: "run", Example: "  tool serve x", Run: run}
	root.AddCommand(serve, &cobra.Command{Use: "old", Short: "Other", Run: run})
	flags := serve.Flags()
	flags.SortFlags = false
	for _, f := range [][2]string{{"port", "Address"}, {"dir", "Files"}, {"host", "Address"}, {"quick", ""}} {
		flags.String(f[0], "", "the `"+f[0]+"` to use")
		if f[1] != "" {
			usage.SetSection(flags.Lookup(f[0]), f[1])
		}
	}
	flags.String("hidden", "", "not shown")
	expect.NoError(t, flags.MarkHidden("hidden"))
	for name, want := range map[string]string{
		"serve": `Serve

Usage:
  tool serve NAME [flags]

Examples:
  tool serve x

Flags:
      --quick quick   the quick to use
  -h, --help          help for serve

Address:
      --port port   the port to use
      --host host   the host to use

Files:
      --dir dir   the dir to use

Flags of all commands below tool:
      --loud   print more
`,
		"help": `A tool

Usage:
  tool [command]

Run it:
  serve       Serve

Other commands:
  completion  Generate the autocompletion script for the specified shell
  help        Help about any command
  old         Other

Flags:
  -h, --help   help for tool
      --loud   print more

Use "tool [command] --help" for more information about a command.
`,
	} {
		var out bytes.Buffer
		root.SetOut(&out)
		args := []string{name, "--help"}
		if name == "help" {
			args = []string{"--help"}
		}
		root.SetArgs(args)
		expect.NoError(t, root.ExecuteContext(t.Context()))
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
