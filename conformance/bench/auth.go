// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
)

// authLines are the lines of the test's output that are results.
var authLines = regexp.MustCompile(`(?m)^(auth|local|1000) ?.*\n`)

// benchAuth measures a GET with and without access control. The packages that it measures
// can only be imported in the module of the program, so it runs their test.
func benchAuth(out io.Writer) error {
	cmd := exec.Command("go", "test", "github.com/watershed-project/watershed/cmd/watershed/internal/access", "-run", "^TestOverhead$", "-count=1", "-v")
	cmd.Env = append(os.Environ(), "WATERSHED_KUBE=required", "WATERSHED_BENCH=auth")
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("TestOverhead: %w: %s", err, text)
	}
	_, err = out.Write(bytes.Join(authLines.FindAll(text, -1), nil))
	return err
}
