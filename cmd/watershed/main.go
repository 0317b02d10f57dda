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
	"fmt"
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
		fmt.Fprintln(os.Stderr, "watershed:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "watershed",
		Short:         "The read side of Kubernetes",
		Version:       build.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(serve.NewCommand(), status.NewCommand(), check.NewCommand(), verify.NewCommand(), disk.NewCommand(),
		past.NewLogCommand(), past.NewDiffCommand(), past.NewChangesCommand(), kubeconfig.NewCommand(),
		rbac.NewCommand(), config.NewCommand(), version.NewCommand())
	return root
}
