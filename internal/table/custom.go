// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// Column is one of the additionalPrinterColumns of a custom resource's version.
type Column struct {
	Name, Type, Format, Description, JSONPath string
	Priority                                  int32
}

// Custom returns a printer for custom resources, which have to be unstructured. Without
// columns it prints the name and the age.
//
// The printer is usable even if there is an error: the first column with an invalid path
// and all columns after it are left out, as apiextensions-apiserver does, which accepts
// such definitions.
func Custom(columns []Column) (*Printer, error) {
	if len(columns) == 0 {
		columns = []Column{{
			Name: "Age", Type: "date", Description: metaDoc["creationTimestamp"],
			JSONPath: ".metadata.creationTimestamp",
		}}
	}
	p := &Printer{columns: []column{nameColumn}}
	var finders []customCell
	p.cells = of(func(o *unstructured.Unstructured, now time.Time) []any {
		cells := make([]any, 0, 1+len(finders))
		cells = append(cells, o.GetName())
		for i := range finders {
			cells = append(cells, finders[i].of(o.Object, now))
		}
		return cells
	})
	for _, c := range columns {
		path, err := parsePath(c.JSONPath)
		if err != nil {
			return p, fmt.Errorf("column %s: path %q: %w", c.Name, c.JSONPath, err)
		}
		finders = append(finders, customCell{path: path, kind: c.Type})
		p.columns = append(p.columns, column{
			Name: c.Name, Type: c.Type, Format: c.Format, Priority: c.Priority,
			Description: or(c.Description, "Custom resource definition column (in JSONPath format): "+c.JSONPath),
		})
	}
	return p, nil
}

// customCell makes one cell of custom resources.
type customCell struct {
	path *path
	kind string
}

// of returns the cell of an object, nil if the object does not have the value or the
// column cannot show it.
func (c *customCell) of(o map[string]any, now time.Time) any {
	value, ok := c.path.find(o)
	if !ok {
		return nil
	}
	switch c.kind {
	case "string":
		return customText(value)
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		if s, ok := value.(string); ok {
			var t metav1.Time
			if t.UnmarshalQueryParameter(s) != nil {
				return "<invalid>"
			}
			return age(t, now)
		}
	}
	return nil
}

// customText returns a value as text.
func customText(value any) any {
	switch v := value.(type) {
	case string:
		return v
	case nil:
		return "<no value>"
	case map[string]any, []any:
		b, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		return string(b)
	}
	return fmt.Sprint(value)
}

// path finds a value in an object.
type path struct {
	// fields are the names of a path that consists only of fields.
	fields []string
	// parsed has the *jsonpath.JSONPath of other paths, each of which one goroutine can
	// use at a time.
	parsed *sync.Pool
}

var plainPath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

func parsePath(text string) (*path, error) {
	if plainPath.MatchString(text) {
		return &path{fields: strings.Split(text[1:], ".")}, nil
	}
	parse := func() (*jsonpath.JSONPath, error) {
		j := jsonpath.New("column").AllowMissingKeys(true)
		return j, j.Parse("{" + text + "}")
	}
	first, err := parse()
	if err != nil {
		return nil, err
	}
	pool := &sync.Pool{New: func() any {
		j, _ := parse() // it was parsed without an error before
		return j
	}}
	pool.Put(first)
	return &path{parsed: pool}, nil
}

// find returns the first value at the path.
func (p *path) find(o map[string]any) (value any, ok bool) {
	if p.parsed != nil {
		return p.search(o)
	}
	value = o
	for _, field := range p.fields {
		m, _ := value.(map[string]any)
		if value, ok = m[field]; !ok {
			return nil, false
		}
	}
	return value, true
}

// search evaluates a path that has more than fields.
func (p *path) search(o map[string]any) (value any, ok bool) {
	j := p.parsed.Get().(*jsonpath.JSONPath)
	results, err := j.FindResults(o)
	if err != nil {
		return nil, false // j may have stopped in the middle, so it is not reused
	}
	p.parsed.Put(j)
	if len(results) == 0 || len(results[0]) == 0 {
		return nil, false
	}
	return results[0][0].Interface(), true
}
