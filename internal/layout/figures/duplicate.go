// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"hash/maphash"
	"slices"
	"strings"
)

const (
	// duplicateTokens is the smallest number of tokens of a duplicated block.
	duplicateTokens = 50
	// duplicateLines is the smallest number of lines of a duplicated block. It
	// leaves out dense rows of data.
	duplicateLines = 6
)

// Block is a run of code that repeats an earlier one.
type Block struct {
	// At and End are the first and the last line of the repetition, First and
	// FirstEnd those of the earlier run.
	At, First     Place
	End, FirstEnd int
	Tokens        int
}

func (b Block) String() string {
	return fmt.Sprintf("%s-%d repeats %s-%d (%d tokens)", b.At, b.End, b.First, b.FirstEnd, b.Tokens)
}

// Duplicates returns the blocks outside tests that repeat an earlier block, in
// the files whose path is accepted (nil accepts all of them). A block is a run
// of at least 50 tokens on at least 6 lines, inside one declaration. It repeats
// another one if they are the same except for a renaming of identifiers that is
// consistent within every 50 tokens. Literals must be equal, so that rows of data
// are not duplicates of each other. Imports and comments are not compared.
//
// A block that occurs n times is counted n-1 times, each time against the
// earlier run with which it shares the most tokens. Counted blocks do not
// overlap. Files are read in the order of their paths.
func Duplicates(c *Checkout, accept func(path string) bool) []Block {
	d := detector{seed: maphash.MakeSeed(), seen: map[uint64][]int{}}
	for _, s := range c.Sources {
		if !s.Test() && (accept == nil || accept(s.Path)) {
			d.scan(c, s)
		}
	}
	return d.blocks()
}

// lexeme is one token of a declaration, in its normalised form.
type lexeme struct {
	kind token.Token
	// literal is the text of a literal.
	literal string
	// back is the distance to the previous occurrence of the same identifier in
	// the declaration, and 0 for its first one and for other tokens. Two runs have
	// the same distances exactly if one is a renaming of the other.
	back int
	// decl numbers the declaration. A block does not cross its end.
	decl   int
	source int
	line   int
}

type detector struct {
	seed    maphash.Seed
	sources []string
	lexemes []lexeme
	decls   int
	// seen has the start of every window of duplicateTokens by its hash.
	seen map[uint64][]int
}

// scan appends the lexemes of a file.
func (d *detector) scan(c *Checkout, s Source) {
	file := c.fset.File(s.File.Pos())
	var spans [][2]int
	for _, decl := range s.File.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.IMPORT {
			continue
		}
		spans = append(spans, [2]int{file.Offset(decl.Pos()), file.Offset(decl.End())})
	}
	var sc scanner.Scanner
	own := token.NewFileSet().AddFile(s.Path, -1, len(s.Text))
	sc.Init(own, s.Text, nil, 0)
	d.sources = append(d.sources, s.Path)
	last := map[string]int{}
	current := -1
	for {
		pos, tok, text := sc.Scan()
		if tok == token.EOF {
			return
		}
		offset := own.Offset(pos)
		i := slices.IndexFunc(spans, func(span [2]int) bool { return span[0] <= offset && offset < span[1] })
		if i < 0 {
			continue
		}
		if i != current {
			current = i
			d.decls++
			clear(last)
		}
		l := lexeme{kind: tok, decl: d.decls, source: len(d.sources) - 1, line: own.Line(pos)}
		if tok.IsLiteral() && tok != token.IDENT {
			l.literal = text
		}
		if tok == token.IDENT {
			if before, ok := last[text]; ok {
				l.back = len(d.lexemes) - before
			}
			last[text] = len(d.lexemes)
		}
		d.lexemes = append(d.lexemes, l)
	}
}

// blocks goes through the lexemes once and compares every window with the
// earlier ones.
func (d *detector) blocks() []Block {
	var found []Block
	for at := 0; at+duplicateTokens <= len(d.lexemes); {
		first, n := d.longest(at)
		if n == 0 {
			d.remember(at)
			at++
			continue
		}
		found = append(found, d.block(first, at, n))
		for end := at + n; at < end; at++ {
			d.remember(at)
		}
	}
	return found
}

func (d *detector) block(first, at, n int) Block {
	place := func(i int) Place { return Place{d.sources[d.lexemes[i].source], d.lexemes[i].line} }
	return Block{
		At: place(at), End: d.lexemes[at+n-1].line,
		First: place(first), FirstEnd: d.lexemes[first+n-1].line,
		Tokens: n,
	}
}

// longest returns the earlier run that shares the most tokens with the one at a
// position, and their number, which is 0 if no window matches.
func (d *detector) longest(at int) (first, tokens int) {
	if !d.whole(at) {
		return 0, 0
	}
	for _, earlier := range d.seen[d.hash(at)] {
		n := d.shared(earlier, at)
		if n > tokens && d.lines(earlier, n) >= duplicateLines && d.lines(at, n) >= duplicateLines {
			first, tokens = earlier, n
		}
	}
	return first, tokens
}

// shared returns the number of tokens from which on two runs differ. It is 0 if
// that is less than a window. The runs do not overlap.
func (d *detector) shared(a, b int) int {
	if b-a < duplicateTokens || !d.same(a, b) {
		return 0
	}
	n := duplicateTokens
	for a+n < b && b+n < len(d.lexemes) &&
		d.lexemes[a+n].decl == d.lexemes[a].decl && d.lexemes[b+n].decl == d.lexemes[b].decl &&
		d.same(a+n+1-duplicateTokens, b+n+1-duplicateTokens) {
		n++
	}
	return n
}

// lines returns the number of lines that n tokens from a position are on.
func (d *detector) lines(at, n int) int { return d.lexemes[at+n-1].line - d.lexemes[at].line + 1 }

// same compares the windows at two positions.
func (d *detector) same(a, b int) bool {
	for i := range duplicateTokens {
		x, y := d.lexemes[a+i], d.lexemes[b+i]
		if x.kind != y.kind || x.literal != y.literal || within(x.back, i) != within(y.back, i) {
			return false
		}
	}
	return true
}

// within returns a distance if it stays inside a window in which i tokens
// precede, and otherwise 0: the identifier is new in the window.
func within(back, i int) int {
	if back > i {
		return 0
	}
	return back
}

// whole reports whether the window at a position is inside one declaration.
func (d *detector) whole(at int) bool {
	end := at + duplicateTokens - 1
	return end < len(d.lexemes) && d.lexemes[at].decl == d.lexemes[end].decl
}

func (d *detector) remember(at int) {
	if d.whole(at) {
		h := d.hash(at)
		d.seen[h] = append(d.seen[h], at)
	}
}

func (d *detector) hash(at int) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	for i := range duplicateTokens {
		l := d.lexemes[at+i]
		h.WriteByte(byte(l.kind))
		h.WriteByte(byte(within(l.back, i)))
		h.WriteString(l.literal)
	}
	return h.Sum64()
}

// supporting are the top folders whose code is neither in the library nor in the
// program: tests and benchmarks against other implementations, examples, the
// control planes that tests run and these rules.
var supporting = []string{"conformance/", "examples/", "internal/kubetest/", "internal/layout/"}

// Product reports whether a file belongs to the library or the program.
func Product(path string) bool {
	return !slices.ContainsFunc(supporting, func(folder string) bool { return strings.HasPrefix(path, folder) })
}
