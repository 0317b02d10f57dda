// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

var picturesFlag = flag.Duration("pictures", 0,
	"how long TestPrometheus loads the program before it draws the panels of the dashboard into "+
		"docs/operations/pictures; 0 draws nothing")

// The size of a panel, in pixels, and that of its parts.
const (
	columnWidth, panelHeight = 50, 220
	titleHeight, legendLines = 24, 4
	lineHeight               = 15
)

// lineColors are those of the lines of a panel, in turns.
var lineColors = []string{"#2f6f4f", "#b8552b", "#3b5ba5", "#8a6d1f", "#7a3e8e", "#1f7f8a", "#a03050", "#555555"}

// points is a series over time.
type points struct {
	Metric map[string]string
	Values [][2]any
}

// value returns a value of a series, NaN if it is none.
func (s points) value(i int) float64 {
	text, _ := s.Values[i][1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// queryRange evaluates an expression over a time that ends now.
func (p *prometheus) queryRange(t *testing.T, expr string, during time.Duration) []points {
	t.Helper()
	now := time.Now()
	values := url.Values{
		"query": {expr},
		"start": {fmt.Sprint(now.Add(-during).Unix())},
		"end":   {fmt.Sprint(now.Unix())},
		"step":  {"2"},
	}
	resp, err := http.Get(p.url + "/api/v1/query_range?" + values.Encode())
	expect.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	expect.NoError(t, err)
	var answer struct{ Data struct{ Result []points } }
	expect.NoError(t, json.Unmarshal(body, &answer))
	return answer.Data.Result
}

// label matches a label in a legend.
var label = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend returns the name of a series: that of the query, or its labels.
func legend(format string, metric map[string]string) string {
	if format != "" {
		return label.ReplaceAllStringFunc(format, func(l string) string { return metric[strings.Trim(l, "{}")] })
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(metric)) {
		parts = append(parts, metric[name])
	}
	return strings.Join(parts, "  ")
}

// amountOf returns a value with its unit.
func amountOf(v float64, unit string) string {
	switch unit {
	case "bytes", "Bps":
		for _, suffix := range []string{" B", " KiB", " MiB", " GiB"} {
			if math.Abs(v) < 1024 || suffix == " GiB" {
				return strconv.FormatFloat(v, 'g', 3, 64) + suffix
			}
			v /= 1024
		}
	case "percentunit":
		return strconv.FormatFloat(100*v, 'g', 3, 64) + " %"
	case "s":
		return strconv.FormatFloat(v, 'g', 3, 64) + " s"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// canvas draws one picture.
type canvas struct{ strings.Builder }

func (c *canvas) text(x, y float64, size int, color, text string) {
	fmt.Fprintf(c, `<text x="%.0f" y="%.0f" font-size="%d" fill="%s">%s</text>`+"\n", x, y, size, color,
		html.EscapeString(text))
}

// line is a series with its name.
type line struct {
	points
	name string
}

// panel draws a panel at a place.
func (c *canvas) panel(x, y, width float64, p *grafanaPanel, all []line) {
	unit := p.FieldConfig.Defaults.Unit
	fmt.Fprintf(c, `<rect x="%.0f" y="%.0f" width="%.0f" height="%d" fill="#ffffff" stroke="#d0d0d0"/>`+"\n", x+3, y+3,
		width-6, panelHeight-6)
	c.text(x+12, y+20, 13, "#222222", p.Title)
	switch p.Type {
	case "timeseries":
		c.lines(x, y, width, unit, all)
	default:
		for i, s := range all {
			if i >= 10 {
				break
			}
			row := y + titleHeight + 20 + float64(i)*lineHeight
			c.text(x+12, row, 11, "#444444", s.name)
			c.text(x+width-90, row, 11, "#111111", amountOf(s.value(len(s.Values)-1), unit))
		}
	}
}

// lines draws series over time, with a scale and a legend.
func (c *canvas) lines(x, y, width float64, unit string, all []line) {
	top, least, first, last := 0.0, 0.0, math.Inf(1), math.Inf(-1)
	for _, s := range all {
		for i, v := range s.Values {
			at, _ := v[0].(float64)
			first, last = min(first, at), max(last, at)
			if n := s.value(i); !math.IsNaN(n) {
				top, least = max(top, n), min(least, n)
			}
		}
	}
	if top == least {
		top = least + 1
	}
	left, right := x+70, x+width-14
	upper, lower := y+titleHeight+10, y+panelHeight-14-legendLines*lineHeight
	for _, share := range []float64{0, 0.5, 1} {
		at := lower - share*(lower-upper)
		fmt.Fprintf(c, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke="#e4e4e4"/>`+"\n", left, at, right, at)
		c.text(x+10, at+4, 10, "#777777", amountOf(least+share*(top-least), unit))
	}
	for i, s := range all {
		var path []string
		for j, v := range s.Values {
			at, _ := v[0].(float64)
			if n := s.value(j); !math.IsNaN(n) {
				path = append(path, fmt.Sprintf("%.1f,%.1f", left+(at-first)/max(1, last-first)*(right-left),
					lower-(n-least)/(top-least)*(lower-upper)))
			}
		}
		color := lineColors[i%len(lineColors)]
		fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.4"/>`+"\n",
			strings.Join(path, " "), color)
		column, row := i/legendLines, i%legendLines
		if from := x + 14 + float64(column)*150; from+140 < x+width {
			c.text(from, lower+18+float64(row)*lineHeight, 10, color, fmt.Sprintf("— %.24s", s.name))
		}
	}
}

// drawDashboard draws each row of the dashboard with data of a real Prometheus.
func drawDashboard(t *testing.T, p *prometheus, during time.Duration) {
	t.Helper()
	panels := readDashboard(t).Panels
	for len(panels) > 0 {
		title := panels[0]
		panels = panels[1:]
		end := slices.IndexFunc(panels, func(p grafanaPanel) bool { return p.Type == "row" })
		if end < 0 {
			end = len(panels)
		}
		drawRow(t, p, during, &title, panels[:end])
		panels = panels[end:]
	}
}

// drawRow draws the panels of a row. Their places are below that of its title.
func drawRow(t *testing.T, p *prometheus, during time.Duration, title *grafanaPanel, panels []grafanaPanel) {
	t.Helper()
	c := &canvas{}
	height := 0.0
	for i := range panels {
		panel := &panels[i]
		place := panel.GridPos
		var all []line
		for _, q := range panel.Targets {
			for _, s := range p.queryRange(t, evaluated(q.Expr), during) {
				all = append(all, line{s, legend(q.LegendFormat, s.Metric)})
			}
		}
		y := float64((place.Y - title.GridPos.Y - title.GridPos.H) / place.H * panelHeight)
		c.panel(float64(place.X*columnWidth), y, float64(place.W*columnWidth), panel, all)
		height = max(height, y+panelHeight)
	}
	picture := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" font-family="sans-serif">`+
		"\n"+
		`<rect width="100%%" height="100%%" fill="#f4f5f5"/>`+"\n%s</svg>\n", 24*columnWidth, height, c)
	name := "dashboard-" + strings.ReplaceAll(strings.ToLower(title.Title), " ", "-") + ".svg"
	file := filepath.Join(checkout, "docs", "operations", "pictures", name)
	expect.NoError(t, os.WriteFile(file, []byte(picture), 0o644))
}
