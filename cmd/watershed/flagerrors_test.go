// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"io"
	"strings"
	"testing"
)

// TestFlagError suggests the nearest flag.
func TestFlagError(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"serve --kubeconfg x", "unknown flag: --kubeconfg: did you mean --kubeconfig?"},
		{"serve --data-dirs x", "did you mean --data-dir?"},
		{"serve --max-cluster-object 1", "did you mean --max-cluster-objects?"},
		{"status --kubeconfig-file x", "did you mean --kubeconfig?"},
		{"verify --nonsense", "unknown flag: --nonsense: see watershed verify --help"},
		{"rbac -Z", "unknown shorthand flag: 'Z' in -Z: see watershed rbac --help"},
		{"serve --max-cluster-objects many", `invalid argument "many" for "--max-cluster-objects" flag`},
	} {
		root := newCommand()
		root.SetArgs(strings.Fields(c.args))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
