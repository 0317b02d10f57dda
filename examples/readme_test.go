// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme_showsEveryProgram checks that the tour is complete.
func TestReadme_showsEveryProgram(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("%d programs, %v", len(mains), err)
	}
	for _, main := range mains {
		name := filepath.Dir(main)
		command := "go run ./examples/" + name
		if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
			command = "cd examples/" + name + " && go run ." // a module of its own
		}
		if !strings.Contains(text, command) {
			t.Errorf("README.md does not say how to run %s", name)
		}
	}
}

// TestReadme_holdsThePodOfTheTest checks that readers are shown the pod with which
// TestExamples makes the reflector lose a deletion.
func TestReadme_holdsThePodOfTheTest(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "kubectl run held --image=registry.k8s.io/pause:3.10 --overrides='"+held+"'\n") {
		t.Errorf("README.md does not create a pod with %s", held)
	}
}
