// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
)

// flagError adds the nearest flag of a command to the error about a flag that does not exist, and
// where to find all flags.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if nearest := config.Nearest(unknown.GetSpecifiedName(), names); nearest != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, nearest)
	}
	return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
}
