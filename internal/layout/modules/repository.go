// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// repository is a copy of a checkout, with the modules in it.
type repository struct {
	// path is the path of the module at the top.
	path    string
	modules []goModule
}

// goModule is one module of a repository.
type goModule struct {
	path string
	// subdir is the folder below the top of the checkout, "." at the top; folder is
	// its copy.
	subdir, folder string
	file           *modfile.File
}

// copyCheckout copies the files of a checkout that git tracks or would track, and reads
// the go.mod files among them. The modules below internal folders build the programs that
// tests run, or are tests. No other module requires them, and they are not published.
func copyCheckout(ctx context.Context, root, folder string) (*repository, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	repo := &repository{}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return nil, err
		}
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return nil, err
		}
		if filepath.Base(name) != "go.mod" || strings.Contains("/"+name, "/testdata/") || strings.Contains("/"+name, "/internal/") {
			continue
		}
		m, err := readModule(folder, path)
		if err != nil {
			return nil, err
		}
		if m.subdir == "." {
			repo.path = m.path
		}
		repo.modules = append(repo.modules, m)
	}
	if repo.path == "" {
		return nil, fmt.Errorf("%s has no go.mod at the top", root)
	}
	return repo, nil
}

func readModule(top, path string) (goModule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return goModule{}, err
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return goModule{}, err
	}
	folder := filepath.Dir(path)
	subdir, err := filepath.Rel(top, folder)
	if err != nil {
		return goModule{}, err
	}
	return goModule{path: file.Module.Mod.Path, subdir: subdir, folder: folder, file: file}, nil
}

// own reports whether a module path belongs to the repository.
func (r *repository) own(path string) bool {
	return slices.ContainsFunc(r.modules, func(m goModule) bool { return m.path == path })
}

// version returns the version at which the modules require each other: the one that
// is published next.
func (r *repository) version() (string, error) {
	version := ""
	for _, m := range r.modules {
		if len(m.file.Replace) > 0 {
			return "", fmt.Errorf("module %s: go.mod has a replace directive; go install would refuse it, put it into go.work", m.path)
		}
		for _, required := range m.file.Require {
			switch {
			case !r.own(required.Mod.Path):
			case version == "":
				version = required.Mod.Version
			case version != required.Mod.Version:
				return "", fmt.Errorf("module %s requires %s, others require %s", m.path, required.Mod, version)
			}
		}
	}
	if version == "" {
		return "", errors.New("no module requires another module of the repository")
	}
	return version, nil
}

// writeProxy writes all modules at a version, in the layout that GOPROXY reads.
func (r *repository) writeProxy(folder, version string) error {
	for _, m := range r.modules {
		escaped, err := module.EscapePath(m.path)
		if err != nil {
			return err
		}
		versions := filepath.Join(folder, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(versions, 0o755); err != nil {
			return err
		}
		var zip bytes.Buffer
		if err := modzip.CreateFromDir(&zip, module.Version{Path: m.path, Version: version}, m.folder); err != nil {
			return fmt.Errorf("module %s: %w", m.path, err)
		}
		info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC()})
		if err != nil {
			return err
		}
		mod, err := os.ReadFile(filepath.Join(m.folder, "go.mod"))
		if err != nil {
			return err
		}
		for name, content := range map[string][]byte{
			"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod, version + ".zip": zip.Bytes(),
		} {
			if err := os.WriteFile(filepath.Join(versions, name), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
