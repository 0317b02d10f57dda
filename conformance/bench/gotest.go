// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
)

// modulePath is the path of the module that is measured.
const modulePath = "github.com/watershed-project/watershed"

// goTest is a benchmark that runs a test or a benchmark of a package.
type goTest struct {
	pkg, name string
	// lines matches the beginnings of the lines of its output that are results.
	lines string
}

// benchmark returns the function of the benchmark with that name.
func (t goTest) benchmark(name string) func(io.Writer) error {
	// A benchmark repeats its measurements itself, so go test runs it once.
	args := []string{"test", modulePath + t.pkg, "-vet=off", "-count=1", "-timeout=60m", "-v", "-run=^" + t.name + "$"}
	if t.lines == "" {
		args = append(args[:5], "-run=^$", "-bench=^"+t.name+"$", "-benchtime=1x")
		t.lines = t.name + "|" + name + ":"
	}
	results := regexp.MustCompile("(?m)^(" + t.lines + ").*\n")
	return func(out io.Writer) error {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "WATERSHED_KUBE=required", "WATERSHED_BENCH="+name)
		text, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", t.name, err, text)
		}
		for _, line := range results.FindAll(text, -1) {
			fmt.Fprintf(out, "%s", line)
		}
		return nil
	}
}
