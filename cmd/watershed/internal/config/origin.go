// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import "fmt"

// Origin is where the value of a setting comes from. The zero value is the default.
type Origin struct {
	// Flag and Variable are the names of those that have set the value, if one has.
	Flag, Variable string
	// Position is the place in the file, if that has set the value.
	Position Position
}

// IsSet reports whether the value is not the default.
func (o Origin) IsSet() bool { return o != Origin{} }

// String describes the origin for people.
func (o Origin) String() string {
	switch {
	case o.Flag != "":
		return "flag --" + o.Flag
	case o.Variable != "":
		return "variable " + o.Variable
	case o.Position != Position{}:
		return "file " + o.Position.String()
	}
	return "default"
}

// Position is a place in a file. Line and Column begin with 1. 0 means that it is not known.
type Position struct {
	File         string
	Line, Column int
}

// String returns the position in the form that editors understand.
func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}
