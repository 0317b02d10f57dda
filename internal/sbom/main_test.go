// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// buildProgram builds a program that has modules. Go records none in that of a test.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"./testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return program
}

// modules returns the modules that the go command finds in a program.
func modules(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "mod", "dep":
			found = append(found, "pkg:golang/"+fields[1]+"@"+
				strings.NewReplacer("(devel)", "devel", "+", "%2B").Replace(fields[2]))
		case program + ":":
			found = append(found, "pkg:golang/stdlib@"+strings.TrimPrefix(fields[1], "go"))
		}
	}
	if len(found) < 3 {
		t.Fatalf("the program has only the modules %v", found)
	}
	return found
}

// TestRun compares the document of a program with what the go command finds in it.
func TestRun(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	program := buildProgram(t)
	var err error
	var texts [2][]byte
	for i := range texts {
		to := filepath.Join(t.TempDir(), "sbom.json")
		if err := run(program, to); err != nil {
			t.Fatal(err)
		}
		if texts[i], err = os.ReadFile(to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two documents of one program differ")
	}
	var d document
	if err := json.Unmarshal(texts[0], &d); err != nil {
		t.Fatal(err)
	}
	if d.Creation.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("created at %s", d.Creation.Created)
	}
	want := modules(t, program)
	var got []string
	related := map[string]bool{}
	for _, r := range d.Relationships {
		related[r.Related] = true
	}
	for _, p := range d.Packages {
		got = append(got, p.References[0].Locator)
		if !related[p.ID] {
			t.Errorf("%s is not related to the program", p.Name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNewDocument_workspace checks the versions of modules that the linker records without one: those of the
// workspace of a release are published with it, and a directory that replaces a module is not.
func TestNewDocument_workspace(t *testing.T) {
	directory := debug.Module{Path: "./fork", Version: "(devel)"}
	d := newDocument(&buildinfo.BuildInfo{
		GoVersion: "go1.26.0",
		Main:      debug.Module{Path: "example.com/shop/cmd", Version: "v0.1.0"},
		Deps: []*debug.Module{
			{Path: "example.com/shop", Version: "(devel)"},
			{Path: "example.com/other", Version: "v1.2.3", Sum: "h1:x"},
			{Path: "example.com/fork", Version: "v1.0.0", Replace: &directory},
		},
	}, time.Time{})
	var got []string
	for _, p := range d.Packages {
		got = append(got, p.Name+" "+p.Version)
	}
	want := []string{
		"example.com/shop/cmd v0.1.0", "example.com/shop v0.1.0", "example.com/other v1.2.3", "./fork devel",
		"stdlib 1.26.0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRun_saysWhatIsWrong(t *testing.T) {
	if err := run("main.go", filepath.Join(t.TempDir(), "x")); err == nil ||
		!strings.Contains(err.Error(), "program main.go") {
		t.Error(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "now")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := run(program, filepath.Join(t.TempDir(), "x")); err == nil ||
		!strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Error(err)
	}
}
