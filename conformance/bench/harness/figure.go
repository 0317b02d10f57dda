// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Colours of the subjects. They are the same in all figures.
const (
	ColourOurs     = "#1f6fc4"
	ColourOursPale = "#8ab8e6"
	ColourClientGo = "#6b727a"
	ColourOther    = "#b9bfc6"
)

const (
	inkColour   = "#24292f"
	faintColour = "#d8dde2"
	paperColour = "#ffffff"
)

// fontFamily ends with a generic family, which every viewer has. The layout does not
// depend on which one a viewer uses.
const fontFamily = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', " +
	"'DejaVu Sans', sans-serif"

// Widths reserved for a character, in em. They are those of the widest common fonts:
// an average text in Verdana or DejaVu Sans takes 0.6 em per character and 0.7 in bold,
// in a monospaced font 0.6, in Arial 0.5.
const (
	regularEm = 0.68
	boldEm    = 0.76
)

// Lengths in pixels.
const (
	titleSize   = 16
	textSize    = 12
	figureEdge  = 16
	titleHeight = 36
	// headHeight is the height of the line with the titles of panels.
	headHeight = 26
	// nameHeight is the height of a line with the name of a subject.
	nameHeight = 24
	// nameBase is where the baseline of that text is.
	nameBase  = 17
	barHeight = 14
	// barGap is the space below a bar.
	barGap = 10
	// valueGap is the space between a bar and its value.
	valueGap = 6
	// panelGap is the space between panels, and below a row of them.
	panelGap = 24
	// innerWidth is the least width of all panels of a row.
	innerWidth = 708
)

// Figure is a chart of horizontal bars in panels side by side, with the same subjects
// in the same order.
//
// It is legible in any font. The name of a subject has a line of its own above its
// bars, across all panels of a row, so it can be of any width. A value follows its bar,
// and a panel's title is above its bars; both have space for the widest common font.
type Figure struct {
	Title    string
	Subjects []Bar
	Panels   []Panel
}

// Bar is a subject in every panel of a figure.
type Bar struct {
	Name   string
	Colour string
}

// Panel has a bar for each subject, with its value behind it.
type Panel struct {
	// Title is the name of the measured quantity, with its unit.
	Title  string
	Values []float64
	// Labels are the values as text.
	Labels []string
}

// Add adds the value of the next subject.
func (p *Panel) Add(value float64, label string) {
	p.Values, p.Labels = append(p.Values, value), append(p.Labels, label)
}

// scale returns how many pixels a unit has, so that every bar fits into the width
// together with its label.
func (p *Panel) scale(width float64) float64 {
	scale := math.Inf(1)
	for k, v := range p.Values {
		if v > 0 {
			scale = min(scale, (width-valueGap-textWidth(p.Labels[k], textSize, regularEm))/v)
		}
	}
	if math.IsInf(scale, 1) {
		return 0 // all bars are empty
	}
	return max(0, scale)
}

// textWidth returns the width that is reserved for a text.
func textWidth(text string, size, em float64) float64 {
	return float64(len([]rune(text))) * size * em
}

// SVG draws the figure. The same data results in the same bytes.
func (f *Figure) SVG() []byte {
	columns := max(1, len(f.Panels))
	if columns > 3 {
		columns = 2 // a wider figure would be scaled down too far on a page
	}
	gaps := float64(columns-1) * panelGap
	inner := max(innerWidth, textWidth(f.Title, titleSize, boldEm))
	column := (inner - gaps) / float64(columns)
	for i := range f.Panels {
		p := &f.Panels[i]
		column = max(column, textWidth(p.Title, textSize, boldEm))
		for _, label := range p.Labels {
			column = max(column, 2*textWidth(label, textSize, regularEm)) // half of it for the bars
		}
	}
	column = math.Ceil(column)
	inner = float64(columns)*column + gaps
	block := headHeight + len(f.Subjects)*(nameHeight+barHeight+barGap) + panelGap
	rows := (len(f.Panels) + columns - 1) / columns
	d := &drawing{}
	d.open(f, inner+2*figureEdge, float64(titleHeight+rows*block))
	d.text(figureEdge, titleHeight-8, titleSize, "bold", f.Title)
	for row := range rows {
		d.block(f, row*columns, min(len(f.Panels), (row+1)*columns), float64(titleHeight+row*block), column, inner)
	}
	d.line("</svg>")
	return d.Bytes()
}

// description returns all values as text, for readers that cannot see the figure.
func (f *Figure) description() string {
	var panels []string
	for _, p := range f.Panels {
		var values []string
		for k, s := range f.Subjects {
			values = append(values, s.Name+": "+p.Labels[k])
		}
		panels = append(panels, p.Title+". "+strings.Join(values, "; ")+".")
	}
	return strings.Join(panels, " ")
}

// drawing is an SVG that is being written.
type drawing struct{ bytes.Buffer }

func (d *drawing) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// open writes everything that comes before the first text.
func (d *drawing) open(f *Figure, width, height float64) {
	size := fmt.Sprintf(`width="%s" height="%s"`, pixels(width), pixels(height))
	d.line(`<svg xmlns="http://www.w3.org/2000/svg" %s viewBox="0 0 %s %s" role="img" font-family="%s" fill="%s">`,
		size, pixels(width), pixels(height), fontFamily, inkColour)
	d.line("<title>%s</title>", html.EscapeString(f.Title))
	d.line("<desc>%s</desc>", html.EscapeString(f.description()))
	d.line(`<rect %s fill="%s"/>`, size, paperColour)
}

// block draws a row of panels, those from first to last, at the height top.
func (d *drawing) block(f *Figure, first, last int, top, column, width float64) {
	left := func(i int) float64 { return figureEdge + float64(i-first)*(column+panelGap) }
	for i := first; i < last; i++ {
		d.text(left(i), top+headHeight-8, textSize, "bold", f.Panels[i].Title)
	}
	for k, s := range f.Subjects {
		above := top + headHeight + float64(k)*(nameHeight+barHeight+barGap)
		d.rect(figureEdge, above, width, 1, faintColour)
		d.text(figureEdge, above+nameBase, textSize, "normal", s.Name)
		for i := first; i < last; i++ {
			p := &f.Panels[i]
			length := p.Values[k] * p.scale(column)
			d.rect(left(i), above+nameHeight, 1, barHeight, faintColour) // where bars begin, for empty ones
			if length > 0 {
				length = max(1, length)
				d.rect(left(i), above+nameHeight, length, barHeight, s.Colour)
			}
			d.text(left(i)+length+valueGap, above+nameHeight+barHeight-3, textSize, "normal", p.Labels[k])
		}
	}
}

func (d *drawing) rect(x, y, width, height float64, colour string) {
	d.line(`<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`, pixels(x), pixels(y), pixels(width),
		pixels(height), colour)
}

func (d *drawing) text(x, baseline float64, size int, weight, text string) {
	d.line(`<text x="%s" y="%s" font-size="%d" font-weight="%s">%s</text>`, pixels(x), pixels(baseline), size, weight,
		html.EscapeString(text))
}

// pixels returns a length with at most two decimals.
func pixels(x float64) string {
	return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64)
}
