// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Reference says that a file uses declarations of another file of its package:
// functions, methods, types, fields, variables or constants.
type Reference struct {
	// From and To are names of files.
	From, To string
	// Uses is the number of identifiers in From that are declared in To.
	Uses int
	// TwoWay is true if To also refers to From.
	TwoWay bool
	// Back is true if From comes after To in the order of the package's files.
	Back bool
}

// Against reports whether the reference points against the flow. Of two files
// that refer to each other, neither is below the other: both references count.
// Of a longer cycle the references that point back in the order count.
func (r Reference) Against() bool { return r.TwoWay || r.Back }

func (r Reference) String() string {
	how := "forward"
	switch {
	case r.TwoWay:
		how = "two-way"
	case r.Back:
		how = "back"
	}
	return fmt.Sprintf("%s -> %s (%d uses, %s)", r.From, r.To, r.Uses, how)
}

// PackageFlow is how the files of one package refer to each other, outside
// tests.
type PackageFlow struct {
	// Package is the folder, relative to the checkout.
	Package string
	// Order has the files such that as few references as possible point back to
	// an earlier file: callers first.
	Order []string
	// References has each pair of files once per direction, sorted.
	References []Reference
}

// Against returns the number of references that point against the flow.
func (f PackageFlow) Against() int {
	n := 0
	for _, r := range f.References {
		if r.Against() {
			n++
		}
	}
	return n
}

// Percent returns the share of references that point against the flow.
func (f PackageFlow) Percent() float64 {
	if len(f.References) == 0 {
		return 0
	}
	return 100 * float64(f.Against()) / float64(len(f.References))
}

func (f PackageFlow) against() []Reference {
	return slices.DeleteFunc(slices.Clone(f.References), func(r Reference) bool { return !r.Against() })
}

// back returns the references whose removal leaves no cycle.
func (f PackageFlow) back() []Reference {
	return slices.DeleteFunc(slices.Clone(f.References), func(r Reference) bool { return !r.Back })
}

// Flow returns how the files refer to each other in every package that has more
// than one file, sorted by package. The direction is computed and not
// configured: it is the order of files with the fewest references back.
//
// It type-checks the packages, and has the go command compile what they import.
func Flow(c *Checkout) ([]PackageFlow, error) {
	var flows []PackageFlow
	for _, module := range c.modules {
		if !c.hasPairs(module) {
			continue
		}
		found, err := c.moduleFlow(module)
		if err != nil {
			return nil, err
		}
		flows = append(flows, found...)
	}
	slices.SortFunc(flows, func(a, b PackageFlow) int { return strings.Compare(a.Package, b.Package) })
	return flows, nil
}

// hasPairs reports whether a package of a module has more than one file outside
// tests. Others need not be compiled.
func (c *Checkout) hasPairs(module string) bool {
	files := map[string]int{}
	for _, s := range c.Sources {
		if c.moduleOf(s.Package()) == module && !s.Test() {
			files[s.Package()]++
		}
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(files)), func(n int) bool { return n > 1 })
}

// listed is what go list says about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

func (c *Checkout) moduleFlow(module string) ([]PackageFlow, error) {
	out, err := c.goList(module, nil, "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", "./...")
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	var own []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", module, err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.GoFiles) > 1 {
			own = append(own, p)
		}
	}
	imports := importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var flows []PackageFlow
	for _, p := range own {
		flow, err := c.packageFlow(p, imports)
		if err != nil {
			return nil, err
		}
		flows = append(flows, flow)
	}
	return flows, nil
}

func (c *Checkout) packageFlow(p listed, imports types.Importer) (PackageFlow, error) {
	// The go command prints the folder without symbolic links.
	root, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		return PackageFlow{}, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return PackageFlow{}, err
	}
	dir, err := filepath.Rel(root, p.Dir)
	if err != nil {
		return PackageFlow{}, err
	}
	flow := PackageFlow{Package: filepath.ToSlash(dir)}
	var files []*ast.File
	for _, s := range c.Sources {
		if s.Package() == flow.Package && slices.Contains(p.GoFiles, path.Base(s.Path)) {
			files = append(files, s.File)
		}
	}
	uses, err := c.uses(p.ImportPath, files, imports)
	if err != nil {
		return PackageFlow{}, fmt.Errorf("package %s: %w", flow.Package, err)
	}
	flow.Order = order(p.GoFiles, uses)
	for pair, n := range uses {
		flow.References = append(flow.References, Reference{
			From: pair.from, To: pair.to, Uses: n,
			TwoWay: uses[direction{pair.to, pair.from}] > 0,
			Back:   slices.Index(flow.Order, pair.from) > slices.Index(flow.Order, pair.to),
		})
	}
	slices.SortFunc(flow.References, func(a, b Reference) int {
		return strings.Compare(a.From+" "+a.To, b.From+" "+b.To)
	})
	return flow, nil
}

// uses type-checks a package and counts the references between its files.
func (c *Checkout) uses(importPath string, files []*ast.File, imports types.Importer) (map[direction]int, error) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: imports, Sizes: types.SizesFor("gc", runtime.GOARCH)}
	pkg, err := checker.Check(importPath, c.fset, files, info)
	if err != nil {
		return nil, err
	}
	name := func(pos token.Pos) string { return filepath.Base(c.fset.Position(pos).Filename) }
	counts := map[direction]int{}
	for id, used := range info.Uses {
		if used.Pkg() != pkg || !used.Pos().IsValid() {
			continue
		}
		if pair := (direction{name(id.Pos()), name(used.Pos())}); pair.from != pair.to {
			counts[pair]++
		}
	}
	return counts, nil
}
