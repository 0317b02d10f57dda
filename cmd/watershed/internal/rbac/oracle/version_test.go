// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package oracle

import (
	"os"
	"regexp"
	"testing"
)

// TestVersion checks that the authorizer is of the Kubernetes that the test clusters run.
func TestVersion(t *testing.T) {
	version := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v\S+)`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s does not require k8s.io/kubernetes", file)
		}
		return string(found[1])
	}
	got, want := version("go.mod"), version("../../../../../internal/kubetest/binaries/kubernetes/go.mod")
	if got != want {
		t.Errorf("the oracle is of Kubernetes %s, the test clusters run %s", got, want)
	}
}
