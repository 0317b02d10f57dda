// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// emulator is a terminal that understands the sequences of this package, and fails for all
// others.
type emulator struct {
	columns, rows int
	x, y          int
	lines         [][]rune
	// scrolled are the lines that have left the screen at the top.
	scrolled []string
	hidden   bool
	err      error
}

func newEmulator(columns, rows int) *emulator {
	return &emulator{columns: columns, rows: rows, lines: make([][]rune, rows)}
}

// Write implements [io.Writer].
func (e *emulator) Write(text []byte) (int, error) {
	rest := string(text)
	for rest != "" {
		if sequence, ok := strings.CutPrefix(rest, "\x1b["); ok {
			end := strings.IndexFunc(sequence, func(r rune) bool { return r >= '@' })
			e.control(sequence[:end], sequence[end])
			rest = sequence[end+1:]
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		e.put(r)
	}
	return len(text), e.err
}

// put shows a character at the cursor.
func (e *emulator) put(r rune) {
	switch {
	case r == '\r':
		e.x = 0
	case r == '\n':
		e.x = 0 // the driver of the terminal adds the return
		if e.y++; e.y == e.rows {
			e.scrolled = append(e.scrolled, string(e.lines[0]))
			e.lines = append(e.lines[1:], nil)
			e.y--
		}
	case r < ' ' || e.x >= e.columns:
		e.err = fmt.Errorf("character %q in column %d", r, e.x)
	default:
		line := e.lines[e.y]
		for len(line) <= e.x {
			line = append(line, ' ')
		}
		line[e.x] = r
		e.lines[e.y] = line
		e.x++
	}
}

// control executes a sequence.
func (e *emulator) control(argument string, command byte) {
	switch {
	case command == 'H' && argument == "":
		e.x, e.y = 0, 0
	case command == 'K' && argument == "":
		e.lines[e.y] = e.lines[e.y][:min(e.x, len(e.lines[e.y]))]
	case command == 'J' && argument == "":
		e.lines[e.y] = e.lines[e.y][:min(e.x, len(e.lines[e.y]))]
		clear(e.lines[e.y+1:])
	case command == 'A':
		n, err := strconv.Atoi(argument)
		if err != nil || n > e.y {
			e.err = fmt.Errorf("%s lines up from line %d", argument, e.y)
			return
		}
		e.y -= n
	case command == 'm':
	case command == 'h' || command == 'l':
		e.hidden = e.hidden && argument != "?25" || argument == "?25" && command == 'l'
	default:
		e.err = fmt.Errorf("sequence %q%c", argument, command)
	}
}

// text returns the lines of the screen without trailing spaces and empty lines.
func (e *emulator) text() string {
	var lines []string
	for _, line := range e.lines {
		lines = append(lines, strings.TrimRight(string(line), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
