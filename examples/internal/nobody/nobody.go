// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package nobody tests the programs without a cluster: nobody answers them.
// examples/e2e_test.go does the rest.
package nobody

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

// program is what the tests run: a program's own run function.
type program func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error

// TriesOn wants a program to go on trying, to print want, and to end when it is
// told to.
func TriesOn(t *testing.T, want string, run program) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := printed(ctx, t, want, run); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: %v", err)
	}
	if ctx.Err() == nil {
		t.Error("it did not go on trying")
	}
}

// Fails wants a program to print want and to say which cluster does not answer.
func Fails(t *testing.T, want string, run program) {
	t.Helper()
	if err := printed(t.Context(), t, want, run); err == nil || !strings.Contains(err.Error(), "nobody: ") {
		t.Errorf("nobody answers, and the error is %v", err)
	}
}

// printed runs a program with a cluster that nobody is, and wants it to print that.
func printed(ctx context.Context, t *testing.T, want string, run program) error {
	t.Helper()
	cluster, err := kube.FromConfig(&rest.Config{Host: "http://127.0.0.1:1"}, &kube.Options{Name: "nobody"})
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
