// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package config is the command watershed config: it checks and prints the configuration of serve.
package config

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and print the configuration of serve",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newCheckCommand(), newPrintCommand(), newSchemaCommand())
	return cmd
}

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check configuration files",
		Long: `Check reads configuration files as serve would, with the same environment variables,
and prints all errors with their lines. It does not connect to any cluster.`,
		Example: "  watershed config check watershed.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			failed := 0
			for _, file := range files {
				o := settings.New()
				o.File = file
				if err := o.Load(); err != nil {
					failed++
					fmt.Fprintf(cmd.ErrOrStderr(), "%v\n", err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", file)
			}
			if failed > 0 {
				return errors.New("the configuration is not valid")
			}
			return nil
		},
	}
}

func newPrintCommand() *cobra.Command {
	o := settings.New()
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the settings that serve would use, and where each comes from",
		Long: `Print takes the flags of serve and prints the settings that serve would use with them, as
a configuration file. A comment after each value names its origin: a flag, an environment
variable, a line of the file, or the default.`,
		Example: "  watershed config print --config watershed.yaml --listen :7443",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Load(); err != nil {
				return err
			}
			return o.Keys.Print(cmd.OutOrStdout())
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the configuration file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := settings.New().Keys.Schema()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
