// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError adds the nearest flag of a command to the error about a flag that does not exist, and
// where to find all flags.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	typed, nearest := unknown.GetSpecifiedName(), ""
	least := len(typed)/2 + 1 // a name further away is another word
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := editDistance(typed, f.Name); d < least && !f.Hidden {
			nearest, least = f.Name, d
		}
	})
	if nearest != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, nearest)
	}
	return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
}

// editDistance returns how many bytes must be inserted, removed or replaced to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
