// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

const (
	// requiredVariable must be "required" for the suites to run.
	requiredVariable = "WATERSHED_UPSTREAM"
	// informerVariable chooses the informer of a patched suite.
	informerVariable = "WATERSHED_INFORMER"
	mainModule       = "github.com/watershed-project/watershed"
)

// workspace is a folder with a module of its own, in which a patched suite is built and run.
type workspace struct {
	t   *testing.T
	dir string
	env []string
}

// newWorkspace creates an empty folder in the cache. It removes that of the last run.
func newWorkspace(t *testing.T, name string) *workspace {
	t.Helper()
	if os.Getenv(requiredVariable) != "required" {
		t.Skipf("set %s=required to run upstream's suites", requiredVariable)
	}
	cache, err := binaries.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	w := &workspace{t: t, dir: filepath.Join(cache, "upstream", name)}
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a command in the workspace and returns its output. If it fails, so does the test.
func (w *workspace) run(name string, args ...string) string {
	w.t.Helper()
	out, err := w.try(name, args...)
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// try runs a command in the workspace.
func (w *workspace) try(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.t.Context(), name, args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off")
	cmd.Env = append(cmd.Env, w.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// moduleDir returns the folder of a module that conformance requires, in the module cache.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", "mod", "download", module).CombinedOutput(); err != nil {
		t.Fatalf("download %s: %v\n%s", module, err, out)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("find %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// checkout returns the folder of the main module.
func checkout(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyModule copies a module into the workspace, writable.
func (w *workspace) copyModule(from string) {
	w.t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(w.dir, name)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
	if err != nil {
		w.t.Fatalf("copy %s: %v", from, err)
	}
}

// write writes a file of the workspace.
func (w *workspace) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// patch replaces a text that occurs once in a file.
func (w *workspace) patch(name, old, now string) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(old)); n != 1 {
		w.t.Fatalf("%s has %q %d times, want once: the patch is for another version", name, old, n)
	}
	w.write(name, strings.Replace(string(text), old, now, 1))
}

// requireWatershed makes the workspace's module require this checkout.
func (w *workspace) requireWatershed() {
	w.t.Helper()
	w.run("go", "mod", "edit", "-require="+mainModule+"@v0.0.0", "-replace="+mainModule+"="+checkout(w.t))
}
