// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Checkout is a working tree whose files have been read and parsed.
type Checkout struct {
	// Dir is the folder of the working tree.
	Dir string
	// Sources are its Go files, in the order of their paths.
	Sources []Source
	// Pages are its Markdown files, in the order of their paths.
	Pages []Page

	fset *token.FileSet
	// modules are the folders with a go.mod and Go files, workspace those that a
	// go.work in Dir joins.
	modules, workspace []string
}

// Source is one Go file.
type Source struct {
	// Path is slash-separated and relative to the checkout.
	Path string
	// Text is the content of the file.
	Text []byte
	// File is the syntax tree, with comments.
	File *ast.File
}

// Package returns the folder of the file, relative to the checkout.
func (s Source) Package() string { return path.Dir(s.Path) }

// Test reports whether the go command compiles the file for tests only.
func (s Source) Test() bool { return strings.HasSuffix(s.Path, "_test.go") }

// Page is one Markdown file.
type Page struct {
	// Path is slash-separated and relative to the checkout.
	Path string
	// Text is the content of the file.
	Text []byte
}

// Place is a line of a file.
type Place struct {
	Path string
	Line int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.Path, p.Line) }

// Read reads the Go and Markdown files of the working tree in dir. It returns an
// error if a file cannot be read or parsed, or if there is no Go file.
func Read(dir string) (*Checkout, error) {
	c := &Checkout{Dir: filepath.Clean(dir), fset: token.NewFileSet()}
	if err := filepath.WalkDir(c.Dir, c.visit); err != nil {
		return nil, fmt.Errorf("checkout %s: %w", dir, err)
	}
	if len(c.Sources) == 0 {
		return nil, fmt.Errorf("checkout %s: no Go files", dir)
	}
	if err := c.readWorkspace(); err != nil {
		return nil, err
	}
	c.modules = slices.DeleteFunc(slices.Clone(c.modules), func(module string) bool { return !c.hasSources(module) })
	return c, nil
}

func (c *Checkout) visit(file string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if d.IsDir() {
		if file != c.Dir && ignored(d.Name()) {
			return filepath.SkipDir
		}
		return nil
	}
	rel, err := filepath.Rel(c.Dir, file)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	switch {
	case d.Name() == "go.mod":
		c.modules = append(c.modules, path.Dir(rel))
	case strings.HasSuffix(rel, ".go"):
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(c.fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		c.Sources = append(c.Sources, Source{Path: rel, Text: text, File: parsed})
	case strings.HasSuffix(rel, ".md"):
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		c.Pages = append(c.Pages, Page{Path: rel, Text: text})
	}
	return nil
}

// ignored reports whether the go command ignores folders of this name.
func ignored(name string) bool {
	return name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// hasSources reports whether a Go file belongs to the module in this folder.
func (c *Checkout) hasSources(module string) bool {
	return slices.ContainsFunc(c.Sources, func(s Source) bool { return c.moduleOf(s.Package()) == module })
}

// moduleOf returns the folder of the module that the package in dir belongs to.
func (c *Checkout) moduleOf(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if slices.Contains(c.modules, dir) {
			return dir
		}
	}
	return "."
}

// place returns the line of a position.
func (c *Checkout) place(s Source, pos token.Pos) Place {
	return Place{s.Path, c.fset.Position(pos).Line}
}

// readWorkspace reads which modules a go.work joins. Without one there are none.
func (c *Checkout) readWorkspace() error {
	if _, err := os.Stat(filepath.Join(c.Dir, "go.work")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	out, err := c.goCommand(".", nil, "work", "edit", "-json")
	if err != nil {
		return err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		return fmt.Errorf("go.work of %s: %w", c.Dir, err)
	}
	for _, use := range work.Use {
		c.workspace = append(c.workspace, path.Clean(use.DiskPath))
	}
	return nil
}

// goList runs go list in a folder of the checkout, with additional variables in
// its environment, and returns what it prints. The workspace applies to its own
// modules only: the go command refuses to work on others in it.
func (c *Checkout) goList(dir string, env []string, args ...string) ([]byte, error) {
	if !slices.Contains(c.workspace, c.moduleOf(dir)) {
		env = append(slices.Clone(env), "GOWORK=off")
	}
	return c.goCommand(dir, env, append([]string{"list"}, args...)...)
}

func (c *Checkout) goCommand(dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(c.Dir, filepath.FromSlash(dir))
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s in %s: %w\n%s", args[0], cmd.Dir, err, stderr.Bytes())
	}
	return out, nil
}
