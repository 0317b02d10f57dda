// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package terminal

import (
	"io"
	"strings"
)

// Screen shows one page on the alternate screen of a terminal. Close restores what the user
// saw before.
type Screen struct {
	out io.Writer
	// size returns the size of the terminal.
	size func() (columns, rows int)
}

// OpenScreen switches a terminal to its alternate screen. The caller closes the screen.
func OpenScreen(out io.Writer) *Screen {
	_, _ = io.WriteString(out, alternate+hideCursor+toTop+clearBelow)
	return &Screen{out: out, size: func() (int, int) { return Size(out) }}
}

// Draw shows lines from the top. Lines that do not fit are cut, and those below the last row
// are left out.
func (s *Screen) Draw(lines []string) error {
	columns, rows := s.size()
	_, err := io.WriteString(s.out, page(lines, columns, rows))
	return err
}

// Size returns the size of the terminal now.
func (s *Screen) Size() (columns, rows int) { return s.size() }

// Close shows what the user saw before.
func (s *Screen) Close() {
	_, _ = io.WriteString(s.out, showCursor+normal)
}

// page returns the text that shows lines in place of any others. The last line has no line
// break, which would scroll the page.
func page(lines []string, columns, rows int) string {
	var b strings.Builder
	b.WriteString(toTop)
	for i, line := range lines[:min(len(lines), rows)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(Fit(line, columns))
		b.WriteString(clearLine)
	}
	b.WriteString(clearBelow)
	return b.String()
}
