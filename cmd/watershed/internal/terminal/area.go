// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Area is a few lines at the end of a terminal's output that change in place. What is
// written to it, such as a log, scrolls above them. All methods are safe for concurrent use.
type Area struct {
	out io.Writer
	// size returns the size of the terminal.
	size func() (columns, rows int)

	// mu guards lines, which are shown now.
	mu    sync.Mutex
	lines []string
}

// NewArea returns an area without lines.
func NewArea(out io.Writer) *Area {
	return &Area{out: out, size: func() (int, int) { return Size(out) }}
}

// Rows returns how many lines the area can have.
func (a *Area) Rows() int {
	_, rows := a.size()
	return max(1, rows-1)
}

// Set replaces the lines. Lines that do not fit are cut, and those after [Area.Rows] are left
// out.
func (a *Area) Set(lines []string) error {
	columns, _ := a.size()
	fitting := make([]string, 0, len(lines))
	for _, line := range lines[:min(len(lines), a.Rows())] {
		fitting = append(fitting, Fit(line, columns))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	text := a.toBegin() + below(fitting) + clearBelow
	a.lines = fitting
	_, err := io.WriteString(a.out, text)
	return err
}

// Write writes text above the lines. It should end with a line break.
func (a *Area) Write(text []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lines) == 0 {
		return a.out.Write(text)
	}
	// Every line break clears the rest of its line, which may belong to the area.
	above := strings.ReplaceAll(string(text), "\n", clearLine+"\r\n")
	if _, err := io.WriteString(a.out, a.toBegin()+above+below(a.lines)+clearBelow); err != nil {
		return 0, err
	}
	return len(text), nil
}

// toBegin returns the sequence that moves the cursor from below the lines to the first one.
func (a *Area) toBegin() string {
	if len(a.lines) == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA", len(a.lines))
}

// below returns the text that shows lines and leaves the cursor below them.
func below(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(line + clearLine + "\r\n")
	}
	return b.String()
}
