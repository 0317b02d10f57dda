// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

func TestLDFlags(t *testing.T) {
	for _, test := range []struct{ module, version, want string }{
		{"go.etcd.io/etcd/server/v3", "v3.6.16", "-s -w"},
		{"sigs.k8s.io/kwok", "v0.8.0", "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=v0.8.0"},
		{"helm.sh/helm/v3", "v3.22.0", "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0"},
		{"k8s.io/kubernetes", "v1.37.1", "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1" +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"},
	} {
		if got := ldflags(binaries.Command{Module: test.module, Version: test.version}); got != test.want {
			t.Errorf("%s: %s, want %s", test.module, got, test.want)
		}
	}
}

// tiny returns a command that builds quickly.
func tiny(t *testing.T, source string) binaries.Command {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module tiny\n\ngo 1.26\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return binaries.Command{
		Name: "tiny", Version: "v1.0.0", Package: ".", Source: dir,
		Path: filepath.Join(t.TempDir(), "tiny", "v1.0.0", "tiny"),
	}
}

// nothingPartial checks that a build left only complete files.
func nothingPartial(t *testing.T, c binaries.Command, want ...string) {
	t.Helper()
	onlyIn(t, filepath.Dir(c.Path), want...)
}

func TestBuild(t *testing.T) {
	c := tiny(t, "package main\n\nfunc main() { println(\"built\") }\n")
	if err := build(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	nothingPartial(t, c, "tiny")
	if out, err := exec.Command(c.Path).CombinedOutput(); err != nil || string(out) != "built\n" {
		t.Errorf("the binary says %q, %v", out, err)
	}
	// An existing command is not built again: this one could not be built.
	c.Source = t.TempDir()
	if err := build(t.Context(), c); err != nil {
		t.Errorf("build of what is built: %v", err)
	}
}

func TestBuild_fails(t *testing.T) {
	c := tiny(t, "package main\n\nfunc main() { undefined() }\n")
	if err := build(t.Context(), c); err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("error %v, want the compiler's words", err)
	}
	nothingPartial(t, c)
}

func TestBuild_isInterrupted(t *testing.T) {
	// The source takes longer to compile than to interrupt.
	var source strings.Builder
	source.WriteString("package main\n\nvar n = 1\n\nfunc main() {}\n")
	for i := range 20_000 {
		fmt.Fprintf(&source, "func f%d(m map[string]int) int { for k, v := range m { n += v + len(k)*%d }; return n "+
			"}\n", i, i+os.Getpid())
	}
	c := tiny(t, source.String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var interrupt sync.WaitGroup
	interrupt.Go(func() {
		for ctx.Err() == nil { // until the build has begun
			if found, _ := filepath.Glob(filepath.Join(filepath.Dir(c.Path), ".partial-*")); len(found) > 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		// The compiler runs by now. If it does not, the build is interrupted earlier, which is right too.
		time.Sleep(500 * time.Millisecond)
		cancel()
	})
	err := build(ctx, c)
	cancel()
	interrupt.Wait()
	if err == nil {
		t.Error("an interrupted build succeeded")
	}
	nothingPartial(t, c)
}

func TestIsPackage(t *testing.T) {
	for line, want := range map[string]bool{
		"k8s.io/api/core/v1":                     true,
		"errors":                                 true,
		"# k8s.io/api/core/v1":                   false,
		"go: downloading k8s.io/api v0.37.1":     false,
		"main.go:3:15: undefined: undefined":     false,
		"\t/path/file.go:1:2: other declaration": false,
		"":                                       false,
	} {
		if isPackage(line) != want {
			t.Errorf("isPackage(%q) = %t", line, !want)
		}
	}
}
