// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command picture turns the text of a terminal, with its colours, into an SVG picture. The
// pictures of docs/operations are made with it:
//
//	tmux capture-pane -e -p | go run ./cmd/watershed/internal/terminal/picture > status.svg
package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	// columnWidth and lineHeight are the size of a character, and margin the space around the
	// text, in pixels.
	columnWidth, lineHeight, margin = 8.4, 19, 14
	background, foreground          = "#1d1f21", "#d8dadc"
)

// colors are the colours of the styles.
var colors = map[string]string{"1": "#ffffff", "2": "#6f7478", "31": "#f0736a", "32": "#8ec07c", "33": "#f0c674"}

func main() {
	if err := draw(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// draw writes the picture of a text.
func draw(in io.Reader, out io.Writer) error {
	var lines []string
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		lines = append(lines, strings.TrimRight(scanner.Text(), " "))
	}
	if err := scanner.Err(); err != nil {
		return err
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	columns := 0
	var texts strings.Builder
	for i, line := range lines {
		width := drawLine(&texts, line, i)
		columns = max(columns, width)
	}
	width, height := float64(columns)*columnWidth+2*margin, float64(len(lines))*lineHeight+2*margin
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">
<rect width="100%%" height="100%%" rx="6" fill="%s"/>
<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">
%s</g>
</svg>
`, width, height, width, height, background, texts.String())
	return err
}

// drawLine adds the parts of a line, each in its colour, and returns how many columns the
// line has.
func drawLine(out *strings.Builder, line string, number int) (columns int) {
	var now style
	for line != "" {
		text, rest, found := strings.Cut(line, "\x1b[")
		if text != "" {
			n := utf8.RuneCountInString(text)
			if strings.TrimSpace(text) != "" {
				fmt.Fprintf(out, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s">%s</text>`+"\n",
					margin+float64(columns)*columnWidth, margin+float64(number+1)*lineHeight-5, float64(n)*columnWidth, now.fill(), html.EscapeString(text))
			}
			columns += n
		}
		if !found {
			return columns
		}
		var sequence string
		sequence, line, _ = strings.Cut(rest, "m")
		now.change(sequence)
	}
	return columns
}

// style is the look of the text that follows.
type style struct{ weight, color string }

// change applies the parts of a sequence.
func (s *style) change(sequence string) {
	for part := range strings.SplitSeq(sequence, ";") {
		switch part {
		case "", "0":
			*s = style{}
		case "1", "2":
			s.weight = part
		case "22":
			s.weight = ""
		case "39":
			s.color = ""
		default:
			if colors[part] != "" {
				s.color = part
			}
		}
	}
}

// fill returns the colour of the text.
func (s *style) fill() string {
	for _, part := range []string{s.color, s.weight} {
		if part != "" {
			return colors[part]
		}
	}
	return foreground
}
