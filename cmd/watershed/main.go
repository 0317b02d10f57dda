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
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(newServeCommand(), newStatusCommand(), newCheckCommand(), newVerifyCommand(), newDiskCommand(), newLogCommand(), newDiffCommand(), newChangesCommand(), newKubeconfigCommand(), newRBACCommand(), newConfigCommand(), newVersionCommand())
	return root
}
