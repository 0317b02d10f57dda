// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Widths of an average character in a wide font, in em.
const (
	wideEm     = 0.65
	wideBoldEm = 0.75
)

// box is a rectangle or a text of a drawing.
type box struct {
	text                     string
	left, right, top, bottom float64
}

func (b box) overlaps(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// drawn is the content of a figure.
type drawn struct {
	canvas box
	bars   []box
	// names and others are the texts, with the space that they take in a wide font. A
	// name has an infinite width.
	names, others []box
	title, desc   string
	families      []string
}

func readFigure(t *testing.T, svg []byte) (d drawn) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attrs := map[string]string{}
		for _, a := range start.Attr {
			attrs[a.Name.Local] = a.Value
		}
		number := func(name string) float64 {
			x, _ := strconv.ParseFloat(attrs[name], 64)
			return x
		}
		b := box{left: number("x"), top: number("y")}
		b.right, b.bottom = b.left+number("width"), b.top+number("height")
		switch start.Name.Local {
		case "svg":
			d.canvas = b
			d.families = strings.Split(attrs["font-family"], ", ")
		case "rect":
			if number("height") == barHeight && attrs["fill"] != faintColour {
				d.bars = append(d.bars, b)
			}
		case "title", "desc", "text":
			var content string
			if err := decoder.DecodeElement(&content, &start); err != nil {
				t.Fatal(err)
			}
			switch start.Name.Local {
			case "title":
				d.title = content
			case "desc":
				d.desc = content
			default:
				d.add(content, attrs["font-weight"] == "bold", number("x"), number("y"), number("font-size"))
			}
		}
	}
}

func (d *drawn) add(text string, bold bool, x, baseline, size float64) {
	em := wideEm
	if bold {
		em = wideBoldEm
	}
	b := box{
		text:   text,
		left:   x,
		right:  x + size*em*float64(len([]rune(text))),
		top:    baseline - size,
		bottom: baseline + size/3,
	}
	if x == figureEdge && !bold {
		b.right = math.Inf(1)
		d.names = append(d.names, b)
		return
	}
	d.others = append(d.others, b)
}

// checkLegible fails for text that overlaps a bar or another text, or that leaves the
// figure.
func checkLegible(t *testing.T, svg []byte) drawn {
	t.Helper()
	d := readFigure(t, svg)
	if len(d.names) == 0 || len(d.bars) == 0 || len(d.others) == 0 {
		t.Fatalf("%d names, %d bars, %d other texts", len(d.names), len(d.bars), len(d.others))
	}
	texts := append(append([]box{}, d.names...), d.others...)
	for i, b := range texts {
		for _, bar := range d.bars {
			if b.overlaps(bar) {
				t.Errorf("%q overlaps the bar %+v", b.text, bar)
			}
		}
		for _, other := range texts[:i] {
			if b.overlaps(other) {
				t.Errorf("%q overlaps %q", b.text, other.text)
			}
		}
		if b.left < d.canvas.left || b.top < d.canvas.top || b.bottom > d.canvas.bottom {
			t.Errorf("%q is outside: %+v", b.text, b)
		}
	}
	for _, b := range d.others {
		if b.right > d.canvas.right {
			t.Errorf("%q ends at %.0f, the figure at %.0f", b.text, b.right, d.canvas.right)
		}
	}
	if d.title == "" || d.desc == "" {
		t.Error("no title or description")
	}
	if last := d.families[len(d.families)-1]; last != "sans-serif" {
		t.Errorf("the last font family is %s, which is not generic", last)
	}
	return d
}

func TestFigure_isLegibleInAnyFont(t *testing.T) {
	long := "Watershed, packed & settled, with a name that is far wider than a panel"
	for _, panels := range []int{1, 2, 3, 4, 5} {
		f := &Figure{
			Title:    "Memory of a <pod>, with a title that is wide too",
			Subjects: []Bar{{long, ColourOurs}, {"client-go", ColourClientGo}},
		}
		for range panels {
			p := Panel{Title: "live heap of all processes, bytes per pod"}
			p.Add(0, "not measured")
			p.Add(20000, "20,000,000")
			f.Panels = append(f.Panels, p)
		}
		d := checkLegible(t, f.SVG())
		if d.names[0].text != long || d.title != f.Title || strings.Count(d.desc, "client-go: 20,000,000") != panels {
			t.Errorf("%q, %q, %q", d.names[0].text, d.title, d.desc)
		}
		if len(d.bars) != panels {
			t.Errorf("%d bars in %d panels with one value each", len(d.bars), panels)
		}
		if again := f.SVG(); !bytes.Equal(again, f.SVG()) {
			t.Error("the same data gives other bytes")
		}
	}
}

func TestFigure_barsAreInProportion(t *testing.T) {
	f := &Figure{
		Title: "Latency", Subjects: []Bar{{"a", ColourOurs}, {"b", ColourOther}, {"c", ColourOther}},
		Panels: []Panel{{"ms", []float64{10, 40, 0.001}, []string{"10", "40", "0.001"}}},
	}
	d := checkLegible(t, f.SVG())
	length := func(i int) float64 { return d.bars[i].right - d.bars[i].left }
	if math.Abs(length(1)-4*length(0)) > 0.1 {
		t.Errorf("bars of %.2f and %.2f for 10 and 40", length(0), length(1))
	}
	if length(2) != 1 {
		t.Errorf("a bar of %.2f for almost nothing, want one pixel", length(2))
	}
}

// TestFigures_ofTheDocumentation checks the committed figures.
func TestFigures_ofTheDocumentation(t *testing.T) {
	paths, err := filepath.Glob("../../../docs/performance/*.svg")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			svg, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkLegible(t, svg)
		})
	}
}
