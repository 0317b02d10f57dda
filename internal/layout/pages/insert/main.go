// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command insert inserts the values of docs/performance/results into the pages of the checkout in the current
// directory. Package pages describes the markers. make pages runs it.
package main

import (
	"fmt"
	"os"

	"github.com/watershed-project/watershed/internal/layout/pages"
)

func main() {
	written, err := pages.Update(".")
	for _, path := range written {
		fmt.Fprintln(os.Stdout, path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "insert:", err)
		os.Exit(1)
	}
}
