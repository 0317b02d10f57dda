// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"fmt"
	"strings"
)

// Problem is an error about one setting.
type Problem struct {
	// Flag is the name of the setting's flag, "" if the problem is about something else.
	Flag string
	// Where is the place to correct: a position in the file, a flag or a variable with its
	// value. It is "" if that is not known.
	Where string
	// Text says what is wrong.
	Text string
}

// Error returns the place and the text.
func (p *Problem) Error() string {
	if p.Where == "" {
		return p.Text
	}
	return p.Where + ": " + p.Text
}

// About returns an error about the setting of a flag. [Set.Locate] adds the place that the value
// comes from.
func About(flag, format string, args ...any) error {
	return &Problem{Flag: flag, Text: fmt.Sprintf(format, args...)}
}

// Problems are all errors of a configuration.
type Problems []error

// Error returns a line for each error.
func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	return fmt.Sprintf("the configuration has %d errors:\n  %s", len(p), strings.Join(p.Texts(), "\n  "))
}

// Unwrap returns the errors.
func (p Problems) Unwrap() []error { return p }

// Texts returns the text of each error.
func (p Problems) Texts() []string {
	texts := make([]string, 0, len(p))
	for _, err := range p {
		texts = append(texts, err.Error())
	}
	return texts
}

// orNil returns the problems as an error, nil if there are none.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Nearest returns the candidate that is most like a name, "" if none is.
func Nearest(name string, candidates []string) string {
	best, least := "", 1+max(2, len(name)/3)
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance returns how many letters have to be inserted, removed or replaced to get b from a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
