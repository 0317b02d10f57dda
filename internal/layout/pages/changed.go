// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pages

import (
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/watershed-project/watershed/internal/layout"
)

// module is the import path of the top of a checkout.
const module = "github.com/watershed-project/watershed"

// Commit returns the commit that is checked out, with "-dirty" behind it if Go files differ from it.
func Commit(checkout string) (string, error) {
	hash, err := exec.Command("git", "-C", checkout, "rev-parse", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("commit of %s: %w", checkout, err)
	}
	commit := strings.TrimSpace(string(hash))
	same, err := unchanged(checkout, "HEAD", "*.go")
	if err == nil && !same {
		commit += "-dirty"
	}
	return commit, err
}

// Changed returns the names of the results whose packages differ from their commit. A commit that the repository
// does not have, or a package that is gone, counts as a difference: nobody can tell.
func (rs Results) Changed(checkout string) (map[string]bool, error) {
	files, err := layout.Read(checkout)
	if err != nil {
		return nil, err
	}
	imports := importsOf(files)
	changed := map[string]bool{}
	for name, r := range rs {
		folders, complete := linked(imports, r.Packages)
		if !complete {
			changed[name] = true
			continue
		}
		paths := []string{":(exclude,glob)**/*_test.go"}
		for _, folder := range folders {
			paths = append(paths, ":(glob)"+path.Join(folder, "*.go"))
		}
		same, err := unchanged(checkout, r.Commit, paths...)
		if err != nil {
			return nil, fmt.Errorf("result %s: %w", name, err)
		}
		changed[name] = !same
	}
	return changed, nil
}

// unchanged reports whether files are as they were at a commit.
func unchanged(checkout, commit string, paths ...string) (bool, error) {
	args := append([]string{"-C", checkout, "diff", "--quiet", commit, "--"}, paths...)
	err := exec.Command("git", args...).Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return false, nil // 1 for a difference, 128 for a commit that the repository does not have
	}
	return err == nil, err
}

// importsOf returns the packages of this repository that each package imports, without its tests, by folder.
func importsOf(files []layout.File) map[string][]string {
	imports := map[string][]string{}
	for _, f := range files {
		if f.Test() {
			continue
		}
		own := imports[f.Dir()]
		for _, spec := range f.Syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
			if name == module {
				own = append(own, ".")
			} else if folder, ours := strings.CutPrefix(name, module+"/"); ours {
				own = append(own, folder)
			}
		}
		imports[f.Dir()] = own
	}
	return imports
}

// linked returns the folders of packages and of all that they import. complete is false if there is no
// package for a name.
func linked(imports map[string][]string, packages []string) (folders []string, complete bool) {
	seen := map[string]bool{}
	var visit func(folder string)
	visit = func(folder string) {
		if seen[folder] {
			return
		}
		seen[folder] = true
		folders = append(folders, folder)
		for _, next := range imports[folder] {
			visit(next)
		}
	}
	for _, p := range packages {
		folder := path.Clean(p)
		if _, found := imports[folder]; !found {
			return nil, false
		}
		visit(folder)
	}
	slices.Sort(folders)
	return folders, true
}
