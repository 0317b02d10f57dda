// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun_withoutCluster is all that can be tested without one; examples/e2e_test.go
// does the rest.
func TestRun_withoutCluster(t *testing.T) {
	nobody, err := kube.FromConfig(&rest.Config{Host: "http://127.0.0.1:1"}, &kube.Options{Name: "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), &out, nobody, "default")
	if err == nil || !strings.Contains(err.Error(), "nobody: ") {
		t.Errorf("nobody answers, and the error is %v", err)
	}
	if want := "# config maps\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
