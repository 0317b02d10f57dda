// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// passed is how a row reports a test without a failure.
const passed = "pass"

// newest returns the newest released patch of each minor version, in the given order. An
// entry with a patch, such as 1.31.0, is that release.
func newest(ctx context.Context, root string, minors []string) ([]string, error) {
	listed, err := listKubernetes(ctx, root, "-versions")
	if err != nil {
		return nil, err
	}
	// A proxy may not list every release that it has. The pinned one is in the module.
	pinned, err := listKubernetes(ctx, root, "-f", "{{.Version}}")
	if err != nil {
		return nil, err
	}
	return pick(append(strings.Fields(listed), strings.TrimSpace(pinned)), minors)
}

// listKubernetes runs go list -m for k8s.io/kubernetes, in the module that builds it.
func listKubernetes(ctx context.Context, root string, flags ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"list", "-m"}, flags...), "k8s.io/kubernetes")...)
	cmd.Dir = filepath.Join(root, "internal", "kubetest", "binaries", "kubernetes")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("versions of k8s.io/kubernetes: %w", err)
	}
	return string(out), nil
}

// pick returns the greatest release of each minor version, and entries with a patch as
// they are.
func pick(versions, minors []string) ([]string, error) {
	var picked []string
	for _, minor := range minors {
		if strings.Count(minor, ".") == 2 {
			picked = append(picked, "v"+minor)
			continue
		}
		var patches []string
		for _, v := range versions {
			if semver.MajorMinor(v) == "v"+minor && semver.Prerelease(v) == "" {
				patches = append(patches, v)
			}
		}
		if len(patches) == 0 {
			return nil, fmt.Errorf("version %s of k8s.io/kubernetes: the module proxy has no release of it", minor)
		}
		picked = append(picked, slices.MaxFunc(patches, semver.Compare))
	}
	return picked, nil
}

// trial is the test of one version.
type trial struct {
	root    string
	version string
	rounds  int
}

// row is the result of a trial, as the table shows it.
type row struct {
	version string
	// build is [passed], or the first line of the reason why it does not build.
	build string
	// requests, unexplained and commands are counts; empty if their test did not get
	// that far.
	requests    string
	unexplained string
	commands    string
	chaos       string
}

func (r row) built() bool { return r.build == passed }

func (r row) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", r.version, r.build, r.requests, r.unexplained, r.commands,
		r.chaos)
}

func (t trial) run(ctx context.Context) row {
	r := row{version: t.version, build: passed, requests: "-", unexplained: "-", commands: "-", chaos: "-"}
	if out, err := t.command(ctx, "", "go", "run", "./internal/kubetest/kubebuild"); err != nil {
		r.build = "no: " + reason(out)
		return r
	}
	if out, err := t.command(ctx, "", "go", "test", "-count=1", "-timeout", "60m", "-v", "-run", "^TestChaos$", ".",
		"-chaos.rounds", fmt.Sprint(t.rounds)); err != nil {
		r.chaos = "FAIL: " + reason(out)
	} else {
		r.chaos = passed
	}
	folder, err := os.MkdirTemp("", "watershed-servers-")
	if err != nil {
		r.requests = err.Error()
		return r
	}
	defer os.RemoveAll(folder)
	// These tests fail for every difference that is not listed as intended, and versions
	// do differ. Their counts are the result.
	out, _ := t.command(ctx, folder, "go", "-C", "conformance", "test", "-count=1", "-timeout", "60m", "-v",
		"-run", "^(TestFidelity|TestKubectl)$", "./replica")
	page, _ := os.ReadFile(filepath.Join(folder, "compat.md"))
	r.read(out, page)
	return r
}

var (
	requests = regexp.MustCompile(`(?m)^(\d+ of \d+) requests equal$`)
	commands = regexp.MustCompile(`(\d+ of \d+) commands print the same`)
)

// read parses the counts from the output of the tests and from the page that they write.
func (r *row) read(output, page []byte) {
	if m := requests.FindSubmatch(page); m != nil {
		r.requests = string(m[1])
		r.unexplained = fmt.Sprint(unintended(page))
	}
	if m := commands.FindSubmatch(output); m != nil {
		r.commands = string(m[1])
	}
}

// unintended counts the differences on a page that are not intended, of all its columns.
func unintended(page []byte) int {
	n := 0
	for i, rest := range bytes.Split(page, []byte("\n### Not intended\n")) {
		if i > 0 {
			section, _, _ := bytes.Cut(rest, []byte("\n#"))
			n += bytes.Count(section, []byte("\n- "))
		}
	}
	return n
}

// command runs a command with the version's servers, and passes its output on.
func (t trial) command(ctx context.Context, report, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.root
	cmd.Env = append(os.Environ(), "WATERSHED_KUBE=required", "WATERSHED_KUBE_VERSION="+t.version,
		"WATERSHED_REPORT="+report)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stderr), io.MultiWriter(&out, os.Stderr)
	err := cmd.Run()
	return out.Bytes(), err
}

// complaint matches the line with the reason of a failure.
var complaint = regexp.MustCompile(`(?m)^(?:\s+\w+_test\.go:\d+: |kubebuild: )(.*)$`)

// reason returns the last complaint of an output, short enough for a cell.
func reason(output []byte) string {
	all := complaint.FindAllSubmatch(output, -1)
	if len(all) == 0 {
		return "see the output"
	}
	text := strings.ReplaceAll(string(all[len(all)-1][1]), "|", "/")
	if len(text) > 100 {
		text = text[:100] + "…"
	}
	return text
}
