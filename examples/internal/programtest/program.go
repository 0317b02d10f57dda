// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package programtest tests the programs without a cluster, at an address where no server
// listens, and compares the tour with what they print. examples/e2e_test.go tests them
// with a cluster.
package programtest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

// program is the run function of a program under test.
type program func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error

// Retries expects a program to keep retrying, to print want, and to end with its
// context.
func Retries(t *testing.T, want string, run program) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := printed(ctx, t, want, run); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: %v", err)
	}
	if ctx.Err() == nil {
		t.Error("the program ended before its context")
	}
}

// Fails expects a program to print want and to return an error that names the cluster.
func Fails(t *testing.T, want string, run program) {
	t.Helper()
	if err := printed(t.Context(), t, want, run); err == nil || !strings.Contains(err.Error(), "absent: ") {
		t.Errorf("without a server the error is %v", err)
	}
}

// printed runs a program with a cluster that does not exist, and expects it to print
// want.
func printed(ctx context.Context, t *testing.T, want string, run program) error {
	t.Helper()
	cluster, err := kube.FromConfig(&rest.Config{Host: "http://127.0.0.1:1"}, &kube.Options{Name: "absent"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(ctx, &out, cluster)
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	return err
}

// Shown expects the tour, examples/README.md, to show exactly this output below the
// command.
func Shown(t *testing.T, command, output string) {
	t.Helper()
	tour, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(tour), "```\n$ "+command+"\n")
	if !ok {
		t.Fatalf("README.md does not show %q", command)
	}
	shown, _, _ := strings.Cut(after, "```\n")
	if diff := cmp.Diff(output, shown); diff != "" {
		t.Errorf("output of %q (-printed +shown in README.md):\n%s", command, diff)
	}
}
