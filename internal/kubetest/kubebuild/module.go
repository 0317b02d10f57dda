// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// generateModule creates a module to build the commands in. They have one version of
// Kubernetes, for which the checkout has no module. The module is temporary and lives in
// the cache; remove deletes it. Its go.sum does not come from a reviewed file, so go
// verifies every download against the checksum database.
func generateModule(ctx context.Context, commands []binaries.Command) (dir string, remove func(), err error) {
	module, version := commands[0].Module, commands[0].Version
	// The module is not in a version's folder: build sweeps those, and the module may be
	// in use for longer than a single build.
	cache := filepath.Dir(filepath.Dir(commands[0].Path))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", nil, err
	}
	sweep(cache)
	dir, err = os.MkdirTemp(cache, ".partial-"+version+"-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if err := fillModule(ctx, dir, commands); err != nil {
		remove()
		return "", nil, fmt.Errorf("module of %s %s: %w", module, version, err)
	}
	return dir, remove, nil
}

func fillModule(ctx context.Context, dir string, commands []binaries.Command) error {
	module, version := commands[0].Module, commands[0].Version
	p := newProgress(os.Stdout, module+" "+version)
	defer p.close()
	own, err := ownModFile(ctx, dir, module, version)
	if err != nil {
		return err
	}
	mod, err := modFile(module, version, own)
	if err != nil {
		return err
	}
	tools, err := toolsFile(commands)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"go.mod": mod, "tools.go": tools} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	if out, err := goCommand(ctx, dir, "mod", "tidy").CombinedOutput(); err != nil {
		return fmt.Errorf("go mod tidy: %w\n%s", err, tidyReasons(out))
	}
	return nil
}

// ownModFile fetches a module and returns its go.mod.
func ownModFile(ctx context.Context, dir, module, version string) ([]byte, error) {
	// The response is on standard output even after a failure.
	out, err := goCommand(ctx, dir, "mod", "download", "-json", module+"@"+version).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || len(out) == 0) {
		return nil, withStderr(err)
	}
	var got struct{ GoMod, Error string }
	if err := json.Unmarshal(out, &got); err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	if got.Error != "" {
		return nil, fmt.Errorf("go mod download: %s", got.Error)
	}
	return os.ReadFile(got.GoMod)
}

// modFile returns the go.mod of a module that builds Kubernetes, made from Kubernetes'
// own. That requires v0.0.0 of every staging module, which stands for folders that are
// not in the published module; each is replaced by the matching release. All other
// versions follow from what Kubernetes requires. The language version and the runtime's
// settings are those of a release: without them a new Go would run an old server with new
// defaults.
func modFile(module, version string, own []byte) ([]byte, error) {
	minorPatch, ok := strings.CutPrefix(version, "v1.")
	if !ok {
		return nil, fmt.Errorf("%s: staging modules are known of v1 only", version)
	}
	k, err := modfile.Parse("go.mod", own, nil)
	if err != nil {
		return nil, err
	}
	if k.Module == nil || k.Module.Mod.Path != module || k.Go == nil {
		return nil, fmt.Errorf("its go.mod is not that of %s", module)
	}
	f := new(modfile.File)
	if err := f.AddModuleStmt("generated.invalid/kubernetes"); err != nil {
		return nil, err
	}
	if err := f.AddGoStmt(k.Go.Version); err != nil {
		return nil, err
	}
	for _, g := range k.Godebug {
		if err := f.AddGodebug(g.Key, g.Value); err != nil {
			return nil, err
		}
	}
	if err := f.AddRequire(module, version); err != nil {
		return nil, err
	}
	for _, r := range k.Require {
		if r.Mod.Version != "v0.0.0" {
			continue // it has a version of its own, like k8s.io/utils
		}
		if err := f.AddReplace(r.Mod.Path, "", r.Mod.Path, "v0."+minorPatch); err != nil {
			return nil, err
		}
	}
	if len(f.Replace) == 0 {
		return nil, errors.New("its go.mod requires no staging module")
	}
	f.Cleanup()
	return f.Format()
}

// toolsFile returns a file from which go mod tidy learns what is built. It is never built
// itself: a command cannot be imported.
func toolsFile(commands []binaries.Command) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprint(&b, "//go:build tools\n\npackage tools\n\nimport (\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "\t_ %q\n", c.Package)
	}
	fmt.Fprint(&b, ")\n")
	return format.Source(b.Bytes())
}

// tidyReasons returns the errors of go mod tidy, each reason once and without its chains
// of imports, which fill a screen for every package.
func tidyReasons(out []byte) string {
	var reasons []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "go: downloading ") || strings.HasPrefix(line, "go: finding ") ||
			strings.HasSuffix(line, " imports") || strings.HasSuffix(line, " tested by") {
			continue
		}
		// package: module@version: why
		if pkg, why, ok := strings.Cut(line, ": "); ok && strings.Contains(why, "@") && isPackage(pkg) {
			line = why
		}
		if !slices.Contains(reasons, line) {
			reasons = append(reasons, line)
		}
	}
	return strings.Join(reasons, "\n")
}
