// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// text is an element, with its place, its anchor and its size.
var element = regexp.MustCompile(`<text x="([^"]+)"[^>]*font-size:([0-9.]+)px[^>]*>`)

// checkFigure finds names of subjects that are not placed by their right end, which is
// the same for all of a column, and other text that would move in another font.
func checkFigure(t *testing.T, svg []byte) {
	t.Helper()
	ends := map[string]int{}
	for _, e := range element.FindAllSubmatch(svg, -1) {
		bold := bytes.Contains(e[0], []byte("font-weight:bold"))
		want := "middle"
		switch size := string(e[2]); {
		case size == "10" && !bold:
			want = "end"
			x, err := strconv.ParseFloat(string(e[1]), 64)
			if err != nil {
				t.Fatal(err)
			}
			ends[strconv.FormatFloat(x, 'f', 0, 64)]++
		case size == "9.5", size == "12":
			want = ""
		}
		if want != "" && !bytes.Contains(e[0], []byte(`text-anchor="`+want+`"`)) {
			t.Errorf("%s is not anchored at its %s", e[0], want)
		}
	}
	if !bytes.Contains(svg, []byte(`viewBox="-28 0 `)) || !bytes.Contains(svg, []byte(`<path d="M-28,0L`)) {
		t.Error("no margin for names in a wider font")
	}
	if len(ends) != 1 {
		t.Errorf("the names end at %v, want one place", ends)
	}
}

func TestFigure_anchorsText(t *testing.T) {
	f := &figure{
		title: "Memory", subjects: []bar{{"Watershed, packed & settled", oursColour}, {"client-go", clientGoColour}},
		panels: []panel{{"heap", []float64{1, 20000}, []string{"1", "20,000"}}, {"peak", []float64{3, 4}, []string{"3", "4"}}},
	}
	svg, err := f.svg()
	if err != nil {
		t.Fatal(err)
	}
	checkFigure(t, svg)
	if again := widened(anchored(svg)); !bytes.Equal(again, svg) {
		t.Error("text that is anchored moves when it is anchored again")
	}
}

// TestFigures are those of the documentation.
func TestFigures(t *testing.T) {
	paths, err := filepath.Glob("../../docs/performance/*.svg")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			svg, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkFigure(t, svg)
		})
	}
}
