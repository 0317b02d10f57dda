// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/xml"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	var out strings.Builder
	if err := draw(strings.NewReader("a <b> & \x1b[31mred\x1b[39m \x1b[2m\x1b[39mdim\x1b[0m\n\n███\n\n"), &out); err != nil {
		t.Fatal(err)
	}
	var picture struct {
		Height string `xml:"height,attr"`
		Texts  []struct {
			Fill  string `xml:"fill,attr"`
			Value string `xml:",chardata"`
		} `xml:"g>text"`
	}
	if err := xml.Unmarshal([]byte(out.String()), &picture); err != nil {
		t.Fatalf("%v:\n%s", err, &out)
	}
	got := ""
	for _, text := range picture.Texts {
		got += text.Fill + " " + text.Value + "|"
	}
	want := foreground + " a <b> & |" + colors["31"] + " red|" + colors["2"] + " dim|" + foreground + " ███|"
	if got != want || picture.Height != "85" {
		t.Errorf("%q in %s lines, want %q", got, picture.Height, want)
	}
}
