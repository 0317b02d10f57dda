// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// AimFiles and AimLines are what a package should have at most, MaxFiles and MaxLines what it must not
	// exceed, both without tests. MaxFileLines bounds a file, and tests too.
	AimFiles, AimLines = 20, 3000
	MaxFiles, MaxLines = 24, 3600
	MaxFileLines       = 800
	// longLine is the number of columns above which a line is long. A tab counts as tab columns.
	longLine, tab = 120, 4
)

// notProduct are the folders whose packages no user's program and no release has in it: tests, what only
// tests import, examples, and tools for this repository.
var notProduct = []string{
	"conformance", "examples", "internal/expect", "internal/kubetest", "internal/layout", "internal/wiretest",
	"cmd/watershed/internal/kms/vault", "cmd/watershed/internal/rbac/oracle",
}

// File is a Go file. Path is slash-separated, from the top of the checkout.
type File struct {
	Path   string
	Text   []byte
	Syntax *ast.File
}

// Paths returns the paths of the files of a checkout whose names end with a suffix, slash-separated from the top.
// It skips folders named testdata, folders whose name begins with a dot, and dist, which make writes. It returns an
// error if there is no such file.
func Paths(checkout, suffix string) ([]string, error) {
	var paths []string
	err := fs.WalkDir(os.DirFS(checkout), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || name == "dist"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, suffix):
			paths = append(paths, name)
		}
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("checkout %s: no files *%s", checkout, suffix)
	}
	return paths, err
}

// Read reads and parses the Go files of a checkout, nested modules included: see [Paths].
func Read(checkout string) ([]File, error) {
	paths, err := Paths(checkout, ".go")
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range paths {
		file := filepath.Join(checkout, filepath.FromSlash(name))
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, text, syntax})
	}
	return files, nil
}

// Dir returns the folder of the file's package, "." at the top.
func (f File) Dir() string { return path.Dir(f.Path) }

// Test reports whether the go command compiles the file for tests only.
func (f File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Product reports whether the file is part of the library, of the program, or of what their releases need.
func (f File) Product() bool {
	for _, folder := range notProduct {
		if strings.HasPrefix(f.Path, folder+"/") {
			return false
		}
	}
	return !f.Test()
}

// Public reports whether other modules can import the file's package from the root module.
func (f File) Public() bool {
	folders := strings.Split(f.Path, "/")
	return f.Product() && f.Syntax.Name.Name != "main" &&
		folders[0] != "metrics" && folders[0] != "cmd" && !slices.Contains(folders, "internal")
}

// Lines returns the number of all lines.
func (f File) Lines() int { return bytes.Count(f.Text, []byte("\n")) }

// CodeLines returns the number of lines that have something besides blanks and comments. The lines of a
// raw string count if they are not blank.
func (f File) CodeLines() int {
	file := token.NewFileSet().AddFile(f.Path, -1, len(f.Text))
	var s scanner.Scanner
	s.Init(file, f.Text, nil, 0)
	code, last := 0, 0
	for {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return code
		case tok == token.SEMICOLON && literal == "\n":
			continue // inserted at the end of a line
		}
		first := file.PositionFor(pos, false).Line
		for i, part := range strings.Split(literal, "\n") {
			if line := first + i; line > last && (i == 0 || strings.TrimSpace(part) != "") {
				code++
				last = line
			}
		}
	}
}

// LongLines returns the lines of more than 120 columns.
func (f File) LongLines() []int {
	var long []int
	number := 0
	for line := range bytes.Lines(f.Text) {
		number++
		columns := utf8.RuneCount(bytes.TrimRight(line, "\n")) + (tab-1)*bytes.Count(line, []byte("\t"))
		if columns > longLine {
			long = append(long, number)
		}
	}
	return long
}

// LiteralLines returns the lines with a string that has no place to break it: a raw string, or one
// without spaces. A //nolint comment, and the output of an example, must be in one line too.
func (f File) LiteralLines() map[int]bool {
	file := token.NewFileSet().AddFile(f.Path, -1, len(f.Text))
	var s scanner.Scanner
	s.Init(file, f.Text, nil, scanner.ScanComments)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		first := file.PositionFor(pos, false).Line
		switch {
		case tok == token.EOF:
			return lines
		case tok == token.STRING && (literal[0] == '`' || longestWord(literal) > longLine/3):
		case tok == token.COMMENT && (strings.HasPrefix(literal, "//nolint") || strings.HasPrefix(literal, "// {")):
		default:
			continue
		}
		for i := range strings.Count(literal, "\n") + 1 {
			lines[first+i] = true
		}
	}
}

func longestWord(text string) int {
	longest := 0
	for word := range strings.FieldsSeq(text) {
		longest = max(longest, len(word))
	}
	return longest
}

// Size is the size of a package without its tests.
type Size struct{ Files, Lines int }

// Sizes returns the sizes of packages by folder.
func Sizes(files []File) map[string]Size {
	sizes := map[string]Size{}
	for _, f := range files {
		if !f.Test() {
			size := sizes[f.Dir()]
			sizes[f.Dir()] = Size{size.Files + 1, size.Lines + f.Lines()}
		}
	}
	return sizes
}

// Over reports whether the package has more files or more lines.
func (s Size) Over(files, lines int) bool { return s.Files > files || s.Lines > lines }
