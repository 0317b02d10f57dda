// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"regexp"
	"slices"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours of the subjects are the same in all figures.
var (
	oursColour     = color.RGBA{R: 0x1f, G: 0x6f, B: 0xc4, A: 0xff}
	oursPale       = color.RGBA{R: 0x8a, G: 0xb8, B: 0xe6, A: 0xff}
	clientGoColour = color.RGBA{R: 0x6b, G: 0x72, B: 0x7a, A: 0xff}
	otherColour    = color.RGBA{R: 0xb9, G: 0xbf, B: 0xc6, A: 0xff}
	inkColour      = color.RGBA{R: 0x24, G: 0x29, B: 0x2f, A: 0xff}
	faintColour    = color.RGBA{R: 0xd8, G: 0xdd, B: 0xe2, A: 0xff}
)

// figure is some panels beside each other, with the same subjects in the same order.
type figure struct {
	title    string
	subjects []bar
	panels   []panel
}

// bar is a subject in every panel of a figure.
type bar struct {
	name   string
	colour color.Color
}

// panel is a horizontal bar per subject, each with its value behind it.
type panel struct {
	title  string // what is measured, with its unit
	values []float64
	labels []string
}

// In points.
const (
	panelWidth    vg.Length = 208
	namesWidth    vg.Length = 160
	barHeight     vg.Length = 16
	barPitch      vg.Length = 30
	panelPadding  vg.Length = 54
	headingHeight vg.Length = 30
	namesMargin   vg.Length = 28
)

// svg draws the figure. The same data gives the same bytes.
func (f *figure) svg() ([]byte, error) {
	columns := len(f.panels)
	if columns > 3 {
		columns = 2 // wider would be too small to read on a page
	}
	rows := (len(f.panels) + columns - 1) / columns
	row := panelPadding + vg.Length(len(f.subjects))*barPitch
	width := namesWidth + vg.Length(columns)*panelWidth
	height := headingHeight + vg.Length(rows)*row
	canvas := vgsvg.New(width, height)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(vg.Rectangle{Max: vg.Point{X: width, Y: height}}.Path())
	heading := letters(12, xfont.WeightBold)
	heading.YAlign = text.YTop
	whole.FillText(heading, vg.Point{X: 10, Y: height - 6}, f.title)
	for i := range f.panels {
		p, err := f.panel(i, i%columns == 0)
		if err != nil {
			return nil, err
		}
		left := vg.Length(0)
		if i%columns > 0 {
			left = namesWidth + vg.Length(i%columns)*panelWidth
		}
		right := namesWidth + vg.Length(i%columns+1)*panelWidth
		top := headingHeight + vg.Length(i/columns)*row
		p.Draw(draw.Crop(whole, left+6, right-width-18, height-top-row+6, -top))
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	// Few readers have the font that the text was measured with; these are as wide.
	return widened(anchored(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")))), nil
}

// anchors says, by size and weight, which text is aligned otherwise than to the left.
var anchors = map[string]struct {
	anchor string
	share  float64 // of the width that is to the left of the anchor
	style  text.Style
}{
	"10 normal": {"end", 1, letters(10, xfont.WeightNormal)}, // names of subjects
	"9 normal":  {"middle", 0.5, letters(9, xfont.WeightNormal)},
	"10 bold":   {"middle", 0.5, letters(10, xfont.WeightBold)},
}

var placed = regexp.MustCompile(`<text x="([^"]+)" (y="[^"]+" transform="[^"]+")(\s+style="[^"]*font-weight:(\w+);[^"]*font-size:([0-9.]+)px;[^"]*")>([^<]*)</text>`)

// anchored places text by the end or the middle to which it is aligned. The plot places
// all text by its left end, which is right only in the font that it was measured with:
// in a wider one the names of subjects would run into the bars. Names also keep their
// width, in viewers that can do that.
func anchored(svg []byte) []byte {
	return placed.ReplaceAllFunc(svg, func(element []byte) []byte {
		part := placed.FindSubmatch(element)
		a, ok := anchors[string(part[5])+" "+string(part[4])]
		left, err := strconv.ParseFloat(string(part[1]), 64)
		if !ok || err != nil {
			return element
		}
		width := a.style.Width(html.UnescapeString(string(part[6]))).Points()
		extent := ""
		if a.anchor == "end" {
			extent = fmt.Sprintf(` textLength="%.5g" lengthAdjust="spacingAndGlyphs"`, width)
		}
		return fmt.Appendf(nil, `<text x="%.5g" %s text-anchor="%s"%s%s>%s</text>`, left+a.share*width, part[2], a.anchor, extent, part[3], part[6])
	})
}

var frame = regexp.MustCompile(`<svg width="([0-9.]+)pt" (height="[^"]+") viewBox="0 0 [0-9.]+ ([0-9.]+)"`)

// widened adds a margin on the left, for names in a wider font than the one that they
// were measured with.
func widened(svg []byte) []byte {
	part := frame.FindSubmatch(svg)
	if part == nil {
		return svg
	}
	width, err := strconv.ParseFloat(string(part[1]), 64)
	if err != nil {
		return svg
	}
	margin := namesMargin.Points()
	svg = frame.ReplaceAll(svg, fmt.Appendf(nil, `<svg width="%gpt" $2 viewBox="%g 0 %g $3"`, width+margin, -margin, width+margin))
	// The background is the first path.
	svg = bytes.Replace(svg, []byte("M0,0L"), fmt.Appendf(nil, "M%g,0L", -margin), 1)
	return bytes.Replace(svg, fmt.Appendf(nil, "L0,%sZ", part[3]), fmt.Appendf(nil, "L%g,%sZ", -margin, part[3]), 1)
}

// panel is one of the plots, with the names of the subjects or without.
func (f *figure) panel(i int, named bool) (*plot.Plot, error) {
	content := f.panels[i]
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text = content.title
	p.X.Label.TextStyle = letters(10, xfont.WeightBold)
	p.X.Label.TextStyle.XAlign, p.X.Label.TextStyle.YAlign = text.XCenter, text.YBottom
	p.X.Label.Padding = 2
	most := slices.Max(content.values)
	p.X.Min, p.X.Max = 0, most*1.3 // room for the longest bar's label
	if most == 0 {
		p.X.Max = 1
	}
	p.X.Width = 0
	p.X.Tick.Width = 0
	p.X.Tick.Label = letters(9, xfont.WeightNormal)
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = text.XCenter, text.YTop
	p.X.Tick.Marker = fewTicks{}
	p.Y.Min, p.Y.Max = -0.5, float64(len(f.subjects))-0.5
	p.Y.LineStyle = draw.LineStyle{Color: inkColour, Width: 0.75}
	p.Y.Tick.Width = 0
	p.Y.Tick.Label = letters(10, xfont.WeightNormal)
	p.Y.Tick.Label.XAlign, p.Y.Tick.Label.YAlign = text.XRight, text.YCenter
	p.Y.Padding, p.X.Padding = 0, 4

	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	grid.Vertical = draw.LineStyle{Color: faintColour, Width: 0.5}
	p.Add(grid)
	var names []plot.Tick
	var at plotter.XYLabels
	for k, s := range f.subjects {
		y := float64(len(f.subjects) - 1 - k)
		tick := plot.Tick{Value: y}
		if named {
			tick.Label = s.name
		}
		names = append(names, tick)
		bars, err := plotter.NewBarChart(plotter.Values{content.values[k]}, barHeight)
		if err != nil {
			return nil, err
		}
		bars.Horizontal, bars.XMin, bars.Color, bars.LineStyle.Width = true, y, s.colour, 0
		p.Add(bars)
		at.XYs = append(at.XYs, plotter.XY{X: content.values[k], Y: y})
		at.Labels = append(at.Labels, content.labels[k])
	}
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	labels, err := plotter.NewLabels(at)
	if err != nil {
		return nil, err
	}
	for k := range labels.TextStyle {
		labels.TextStyle[k] = letters(9.5, xfont.WeightNormal)
		labels.TextStyle[k].YAlign = text.YCenter
	}
	labels.Offset = vg.Point{X: 4, Y: 1.5} // the middle of digits, which reach less far down than letters
	p.Add(labels)
	return p, nil
}

// letters is the style of all text.
func letters(size font.Length, weight xfont.Weight) text.Style {
	return text.Style{
		Color:   inkColour,
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: size, Weight: weight},
		Handler: plot.DefaultTextHandler,
	}
}

// fewTicks are those of gonum without the small ones between.
type fewTicks struct{}

func (fewTicks) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for _, tick := range (plot.DefaultTicks{}).Ticks(least, most) {
		if tick.Label != "" {
			tick.Label = thousands(strconv.FormatFloat(tick.Value, 'f', -1, 64))
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// thousands puts commas into a whole number.
func thousands(digits string) string {
	if strings.ContainsAny(digits, ".e-") {
		return digits
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
