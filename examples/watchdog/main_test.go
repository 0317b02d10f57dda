// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun_withoutCluster is all that can be tested without one: that the program
// goes on trying, ends when it is told to, and leaves nothing behind.
// examples/e2e_test.go does the rest.
func TestRun_withoutCluster(t *testing.T) {
	nobody, err := kube.FromConfig(&rest.Config{Host: "http://127.0.0.1:1"}, &kube.Options{Name: "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out strings.Builder
	if err := run(ctx, &out, nobody, "default"); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: %v", err)
	}
	if ctx.Err() == nil {
		t.Error("it did not go on trying")
	}
	if want := ""; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
