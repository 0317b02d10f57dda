// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package terminal

import (
	"fmt"
	"io"
	"strings"
)

// PrintError writes an error for people. Each line begins with the name of the program, so that the lines of an error
// that joins several are told from the output of other programs.
func PrintError(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			fmt.Fprintln(w, "watershed:", line)
		}
	}
}
