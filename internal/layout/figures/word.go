// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"regexp"
	"strings"
)

// Words are the words that the style guide replaces by the subject they stand
// for or by the field's own verb.
var Words = []string{"told", "tell", "nobody", "somebody", "who"}

var wordPattern = regexp.MustCompile(`(?i)\b(` + strings.Join(Words, "|") + `)\b`)

// Use is one occurrence of one of [Words], in lower case.
type Use struct {
	Place
	Word string
}

func (u Use) String() string { return u.Place.String() + " " + u.Word }

// WordUses returns every use of [Words] in the comments of Go files, tests
// included, and in Markdown files. Case does not matter, word boundaries do.
func WordUses(c *Checkout) []Use {
	var uses []Use
	for _, s := range c.Sources {
		for _, group := range s.File.Comments {
			for _, comment := range group.List {
				uses = appendUses(uses, c.place(s, comment.Pos()), comment.Text)
			}
		}
	}
	for _, p := range c.Pages {
		uses = appendUses(uses, Place{p.Path, 1}, string(p.Text))
	}
	return uses
}

// appendUses appends the uses in a text that begins at a place.
func appendUses(uses []Use, at Place, text string) []Use {
	for line := range strings.Lines(text) {
		for _, word := range wordPattern.FindAllString(line, -1) {
			uses = append(uses, Use{at, strings.ToLower(word)})
		}
		at.Line++
	}
	return uses
}
