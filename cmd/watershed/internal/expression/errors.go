// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
)

// Error is what is wrong with an expression.
type Error struct {
	// Line and Column are the position in the text, from 1. They are 0 if the error has no position.
	Line, Column int
	// Field is the name of the field that the kind does not have, "" for other errors.
	Field string
	// Suggestion is the name of the field that is meant, probably. It is "" if no name is similar.
	Suggestion string
	// Message describes the error, with the suggestion and without the position.
	Message string
}

// Error returns the message after the position.
func (e *Error) Error() string {
	switch {
	case e.Line > 1:
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
	case e.Column > 0:
		return fmt.Sprintf("column %d: %s", e.Column, e.Message)
	}
	return e.Message
}

// errorsOf returns the errors of cel-go in plain English. For a field that does not exist, where returns
// the path of the object that is read and the names that its fields have.
func errorsOf(issues *cel.Issues, where func(expression int64) (object string, names []string)) []*Error {
	if issues == nil {
		return nil
	}
	var errs []*Error
	for _, issue := range issues.Errors() {
		e := &Error{Message: plain(issue.Message)}
		if issue.Location != nil && issue.Location.Line() > 0 {
			e.Line, e.Column = issue.Location.Line(), issue.Location.Column()+1
		}
		if m := undefinedField.FindStringSubmatch(issue.Message); m != nil {
			e.Field = m[1]
			object, names := where(issue.ExprID)
			e.Suggestion = nearest(e.Field, names)
			e.Message = fmt.Sprintf("%s has no field %q", object, e.Field)
			if e.Suggestion != "" {
				e.Message += fmt.Sprintf(", did you mean %q?", e.Suggestion)
			}
		}
		errs = append(errs, e)
	}
	return errs
}

var undefinedField = regexp.MustCompile(`^undefined field '(.*)'$`)

// rules turn the messages of cel-go into plain English.
var rules = []struct {
	match *regexp.Regexp
	plain string
}{
	{regexp.MustCompile(`^undeclared reference to '(.*)' \(in container ''\)$`),
		`there is no variable or function $1; the variables are object, cluster and now`},
	{regexp.MustCompile(`^found no matching overload for '(?:@in|_?(in)_?)' applied to '\((.*)\)'$`),
		`the operator in cannot be used with ($2)`},
	{regexp.MustCompile(`^found no matching overload for '_\[_\]' applied to '\((.*)\)'$`),
		`[] cannot be used with ($1); the fields of an object follow a dot, and dyn(x)["a-b"] selects a field ` +
			`whose name cannot`},
	{regexp.MustCompile(`^found no matching overload for '@in' applied to '\((.*)\)'$`),
		`the operator in cannot be used with ($1)`},
	{regexp.MustCompile(`^found no matching overload for '[!_-]?([^\w'@]+|\?_:)_?' applied to '\((.*)\)'$`),
		`the operator $1 cannot be used with ($2)`},
	{regexp.MustCompile(`^found no matching overload for '(.*)' applied to '(.*)'$`),
		`the function $1 cannot be used with $2`},
	{regexp.MustCompile(`^expected type '(.*)' but found '(.*)'$`), `this must be $1, and it is $2`},
	{regexp.MustCompile(`^type '(.*)' does not support field selection$`),
		`a value of type $1 has no fields`},
	{regexp.MustCompile(`^expression of type '(.*)' cannot be range of a comprehension .*$`),
		`a value of type $1 has no elements to go through; use dyn() around it to go through its fields`},
	{regexp.MustCompile(`^Syntax error: mismatched input '<EOF>' expecting .*$`), `the expression ends too early`},
	{regexp.MustCompile(`^Syntax error: mismatched input '(.*)' expecting .*$`), `$1 is not expected here`},
	{regexp.MustCompile(`^Syntax error: (?:extraneous|no viable alternative at) input '(.*)'.*$`),
		`$1 is not expected here`},
	{regexp.MustCompile(`^Syntax error: missing '(.*)' at .*$`), `$1 is missing here`},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '(.*?) *'$`), `$1 is not part of the language`},
	{regexp.MustCompile(`^Syntax error: (.*)$`), `syntax error: $1`},
	{regexp.MustCompile(`(?s)^(?:expression|max) recursion (?:limit|depth) exceeded.*$`), `the expression is nested too deep`},
}

// plain returns a message of cel-go in plain English, as far as it is known.
func plain(message string) string {
	for _, rule := range rules {
		if rule.match.MatchString(message) {
			message = rule.match.ReplaceAllString(message, rule.plain)
			break
		}
	}
	return shorten(message)
}

// shorten cuts a message that repeats much of the expression, and names the types of fields by the last
// part of their names.
func shorten(message string) string {
	message = strings.NewReplacer("google.protobuf.Timestamp", "timestamp", "google.protobuf.Duration", "duration").
		Replace(message)
	message = typeName.ReplaceAllString(message, "$1")
	if len(message) > 300 {
		message = strings.ToValidUTF8(message[:300], "") + " ..."
	}
	return message
}

// typeName matches the names of OpenAPI components and of the types in them, such as
// io.k8s.api.core.v1.PodSpec and com.example.v1.Widget/.spec.
var typeName = regexp.MustCompile(`\b(?:[a-z0-9-]+\.){2,}([A-Z]\w*(?:/[.\w-]+)*)`)

// nearest returns the name that differs least from a given one, in case and at most a third of its
// letters. It returns "" if there is none.
func nearest(name string, names []string) string {
	best, distance := "", max(1, len(name)/3)+1
	for _, candidate := range names {
		if d := edits(strings.ToLower(name), strings.ToLower(candidate), distance); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// edits returns how many letters must be inserted, deleted, replaced or swapped with the next to make b
// of a, and limit if that is more. Names of fields are short, so their square is small.
func edits(a, b string, limit int) int {
	if len(a) > 256 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
