// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command watershed serves a read replica of Kubernetes clusters on this machine: the
// lists, gets and watches of their API, from copies that it keeps up to date.
//
//	watershed serve &
//	watershed kubeconfig --write replica.yaml
//	kubectl --kubeconfig replica.yaml get pods -A
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/build"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/check"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/disk"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/kubeconfig"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/past"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/rbac"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/serve"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/status"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/verify"
	"github.com/watershed-project/watershed/cmd/watershed/internal/command/version"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/cmd/watershed/internal/usage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	name, args := invocation(os.Args)
	root := newCommand()
	root.SetArgs(args)
	if name != root.Name() {
		rename(root, name)
	}
	if err := root.ExecuteContext(ctx); err != nil {
		terminal.PrintError(os.Stderr, err)
		os.Exit(1)
	}
}

// long and example are the help text of the program.
const (
	long = `Watershed is a read replica of Kubernetes clusters. It lists and watches each resource
once, keeps the objects in memory, and answers reads from there: for kubectl,
dashboards and controllers, with the API of Kubernetes. A server is started with
watershed serve. The other commands check what it needs, or use a running server: the
server of this machine, or one elsewhere that --server or --context names.`

	example = `  watershed serve --context prod-eu --context prod-us
  watershed status
  watershed kubeconfig --write replica.yaml
  kubectl --kubeconfig replica.yaml get pods -A`
)

// The groups of commands.
const (
	groupRun     = "run"
	groupInspect = "inspect"
	groupHistory = "history"
	groupSetup   = "setup"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "watershed",
		Short:         "A read replica of Kubernetes clusters",
		Long:          long,
		Example:       example,
		Version:       build.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage.Print)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	add := func(group, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: group, Title: title})
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	add(groupRun, "Run a server:", serve.NewCommand(), check.NewCommand(), config.NewCommand(), rbac.NewCommand(),
		disk.NewCommand())
	add(groupInspect, "Inspect a running server:", status.NewCommand(), verify.NewCommand(), version.NewCommand())
	add(groupHistory, "See what has changed in the clusters:", past.NewLogCommand(), past.NewDiffCommand(),
		past.NewChangesCommand())
	add(groupSetup, "Set up clients:", kubeconfig.NewCommand())
	root.SetCompletionCommandGroupID(groupSetup)
	return root
}
