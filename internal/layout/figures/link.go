// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// Links returns the paths of the modules whose packages a program links when it
// imports the package in the folder pkg of the checkout, sorted. The module of
// the package itself and the standard library are left out. The list is that of
// linux/amd64 without cgo, so that it is the same on every machine.
func Links(c *Checkout, pkg string) ([]string, error) {
	platform := []string{"GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0"}
	out, err := c.goList(pkg, platform, "-deps", "-f", "{{with .Module}}{{.Path}} {{$.DepOnly}}{{end}}", ".")
	if err != nil {
		return nil, err
	}
	linked := map[string]bool{}
	own := ""
	for line := range strings.Lines(string(out)) {
		module, depOnly, found := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case found && depOnly == "true":
			linked[module] = true
		case found:
			own = module
		}
	}
	delete(linked, own)
	return slices.Sorted(maps.Keys(linked)), nil
}

// PublicPackages returns the folders of the packages that other modules can
// import, in order. Packages of commands, of conformance tests and of examples
// are left out, like those below a folder named internal.
func PublicPackages(c *Checkout) []string {
	found := map[string]bool{}
	for _, s := range c.Sources {
		if !s.Test() && s.File.Name.Name != "main" && public(s.Package()) {
			found[s.Package()] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func public(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	if first == "conformance" || first == "examples" || first == "cmd" {
		return false
	}
	for ; pkg != "."; pkg = path.Dir(pkg) {
		if path.Base(pkg) == "internal" {
			return false
		}
	}
	return true
}
