// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/internal/table"
)

const widget = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: a, creationTimestamp: "2026-06-01T11:00:00Z"}
spec: {text: hello, integer: 7, number: 1.5, boolean: true, date: "2026-06-01T11:59:00Z", nothing: null, list: [{k: x}, {k: z}], object: {a: "<b>"}}
`

func TestCustom_cells(t *testing.T) {
	obj := parse(t, widget)
	for _, c := range []struct {
		kind, path string
		want       any
	}{
		{"string", ".spec.text", "hello"},
		{"string", ".spec.integer", "7"},
		{"string", ".spec.number", "1.5"},
		{"string", ".spec.boolean", "true"},
		{"string", ".spec.object", `{"a":"\u003cb\u003e"}`},
		{"string", ".spec.list", `[{"k":"x"},{"k":"z"}]`},
		{"string", ".spec.nothing", "<no value>"},
		{"string", ".spec.missing", nil},
		{"string", ".spec.text.missing", nil},
		{"string", ".spec.nothing.missing", nil},
		{"string", ".spec.list[1].k", "z"},
		{"string", ".spec.list[*].k", "x"},
		{"string", ".spec.list[7].k", nil},
		{"string", `.spec.list[?(@.k=="z")].k`, "z"},
		{"string", "..k", "x"},
		{"integer", ".spec.integer", int64(7)},
		{"integer", ".spec.number", int64(1)},
		{"integer", ".spec.text", nil},
		{"number", ".spec.number", 1.5},
		{"number", ".spec.integer", 7.0},
		{"number", ".spec.boolean", nil},
		{"boolean", ".spec.boolean", true},
		{"boolean", ".spec.integer", nil},
		{"date", ".spec.date", "60s"},
		{"date", ".metadata.creationTimestamp", "60m"},
		{"date", ".spec.text", "<invalid>"},
		{"date", ".spec.integer", nil},
		{"odd", ".spec.text", nil},
	} {
		p, err := table.Custom([]table.Column{{Name: "C", Type: c.kind, JSONPath: c.path}})
		if err != nil {
			t.Fatal(err)
		}
		row, err := p.Row(obj, now)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]any{"a", c.want}, row.Cells); d != "" {
			t.Errorf("%s as %s: %s", c.path, c.kind, d)
		}
	}
}

func TestCustom_columns(t *testing.T) {
	p, err := table.Custom(nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Columns(); len(c) != 2 || c[0].Name != "Name" || c[1].Name != "Age" || c[1].Type != "date" {
		t.Errorf("columns without columns: %v", c)
	}
	row, err := p.Row(parse(t, widget), now)
	if err != nil || line(row) != "a|60m" {
		t.Errorf("row without columns: %v, %v", row, err)
	}

	p, err = table.Custom([]table.Column{
		{Name: "Good", Type: "string", JSONPath: ".spec.text", Priority: 3, Format: "f"},
		{Name: "Bad", Type: "string", JSONPath: ".spec["},
		{Name: "After", Type: "string", JSONPath: ".spec.text"},
	})
	if err == nil {
		t.Error("a bad path is no error")
	}
	c := p.Columns()
	if len(c) != 2 || c[1].Name != "Good" || c[1].Priority != 3 || c[1].Format != "f" ||
		c[1].Description != "Custom resource definition column (in JSONPath format): .spec.text" {
		t.Errorf("columns before a bad one: %v", c)
	}
	if row, err := p.Row(parse(t, widget), now); err != nil || line(row) != "a|hello" {
		t.Errorf("row before a bad column: %v, %v", row, err)
	}
	if _, err := p.Row(parse(t, "{apiVersion: v1, kind: Pod}"), now); err == nil {
		t.Error("a typed object is printed as a custom one")
	}
}

// Parsed paths can be used by one goroutine at a time. The race detector notices a
// violation: a range modifies its path permanently, so the values that it finds are
// arbitrary.
func TestCustom_isShared(t *testing.T) {
	p, err := table.Custom([]table.Column{
		{Name: "Item", Type: "string", JSONPath: `.spec.list[?(@.k=="z")].k`}, {
			Name: "Range", Type: "string", JSONPath: "}{range .spec.list[*]}{.k}{end",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	obj := parse(t, widget)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if row, err := p.Row(obj, now); err != nil || row.Cells[1] != "z" {
					t.Errorf("%v, %v", row, err)
				}
			}
		})
	}
	all.Wait()
}
