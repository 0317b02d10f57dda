// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package terminal draws text that changes in place: a [Screen] that shows one page, and an
// [Area] below lines that scroll. [PrintError] prints the lines of an error.
//
//	s := terminal.OpenScreen(os.Stdout)
//	defer s.Close()
//	s.Draw(lines)
//
// Both write each picture with one call, and overwrite lines instead of clearing them first,
// so that nothing flickers. They use only the sequences that every terminal since the VT100
// has, and the alternate screen of xterm.
package terminal

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// The control sequences.
const (
	toTop        = "\x1b[H"
	clearLine    = "\x1b[K"
	clearBelow   = "\x1b[J"
	hideCursor   = "\x1b[?25l"
	showCursor   = "\x1b[?25h"
	alternate    = "\x1b[?1049h"
	normal       = "\x1b[?1049l"
	reset        = "\x1b[0m"
	defaultWidth = 80
	defaultRows  = 24
)

// Style is the look of a text.
type Style string

// The styles that commands use.
const (
	Dim    Style = "\x1b[2m"
	Red    Style = "\x1b[31m"
	Green  Style = "\x1b[32m"
	Yellow Style = "\x1b[33m"
)

// Text returns a text in the style.
func (s Style) Text(text string) string { return string(s) + text + reset }

// Is reports whether a writer is a terminal that can move its cursor.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// HasColor reports whether a writer is a terminal, and the user has not switched colours
// off with NO_COLOR.
func HasColor(w io.Writer) bool { return Is(w) && os.Getenv("NO_COLOR") == "" }

// Size returns the size of a terminal, 80 by 24 if w is not one.
func Size(w io.Writer) (columns, rows int) {
	if f, ok := w.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 && rows > 0 {
			return columns, rows
		}
	}
	return defaultWidth, defaultRows
}

// Fit returns a line that takes at most a number of columns. Control sequences take none.
// Control characters that are not part of one become spaces.
func Fit(line string, columns int) string {
	var b strings.Builder
	used, styled := 0, false
	for len(line) > 0 {
		if sequence := styleAt(line); sequence != "" {
			b.WriteString(sequence)
			line, styled = line[len(sequence):], sequence != reset
			continue
		}
		r, size := utf8.DecodeRuneInString(line)
		if used == columns {
			break
		}
		if used == columns-1 && visible(line) > 1 {
			r = '…'
		}
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			r = ' '
		}
		b.WriteRune(r)
		line = line[size:]
		used++
	}
	if styled {
		b.WriteString(reset)
	}
	return b.String()
}

// Wrap returns a line without styles as lines that take at most a number of columns, broken at
// spaces. All but the first begin with an indent. Words that are too long are broken too.
func Wrap(line string, columns int, indent string) []string {
	columns = max(columns, len(indent)+8)
	var lines []string
	for utf8.RuneCountInString(line) > columns {
		runes := []rune(line)
		at := columns
		for at > columns/2 && runes[at] != ' ' {
			at--
		}
		if runes[at] != ' ' {
			at = columns
		}
		lines = append(lines, strings.TrimRight(string(runes[:at]), " "))
		line = indent + strings.TrimLeft(string(runes[at:]), " ")
	}
	return append(lines, line)
}

// styleAt returns the style that a line begins with, "" if there is none.
func styleAt(line string) string {
	if !strings.HasPrefix(line, "\x1b[") {
		return ""
	}
	end := strings.IndexFunc(line[2:], func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 || line[2+end] != 'm' {
		return ""
	}
	return line[:2+end+1]
}

// visible returns how many columns a line takes.
func visible(line string) int {
	n := 0
	for len(line) > 0 {
		if sequence := styleAt(line); sequence != "" {
			line = line[len(sequence):]
			continue
		}
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
		n++
	}
	return n
}
