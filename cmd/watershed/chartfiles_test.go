// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/watershed-project/watershed/internal/expect"
)

// checkFile compares a generated file, or writes it if the environment says so.
func checkFile(t *testing.T, path, want string) {
	t.Helper()
	if os.Getenv(deployVariable) == "write" {
		expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		expect.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(path)
	expect.NoError(t, err)
	if string(got) != want {
		t.Errorf("%s is out of date: run make chart-files", path)
		expect.Equal(t, string(got), want)
	}
}

// valuesSchema is the part of a JSON schema that describes values.
type valuesSchema struct {
	Type                 any                      `json:"type"`
	Description          string                   `json:"description"`
	Properties           map[string]*valuesSchema `json:"properties"`
	AdditionalProperties any                      `json:"additionalProperties"`
	Items                *valuesSchema            `json:"items"`
}

// readSchema returns the schema of the values.
func readSchema(t *testing.T) *valuesSchema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	expect.NoError(t, err)
	var s valuesSchema
	expect.NoError(t, json.Unmarshal(text, &s))
	return &s
}

// readValues returns the default values.
func readValues(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	expect.NoError(t, err)
	values := map[string]any{}
	expect.NoError(t, yaml.Unmarshal(text, &values))
	return values
}

// TestChart_schema checks that the schema and the values have the same keys, that each has a
// description, and that the schema refuses keys that it does not have.
func TestChart_schema(t *testing.T) {
	needsDeploy(t, "short", "full")
	root := readSchema(t)
	delete(root.Properties, "global") // Helm adds it
	values := readValues(t)
	// The defaults of its keys are those of the program.
	delete(root.Properties, "config")
	delete(values, "config")
	compareKeys(t, "", root, values)
}

// compareKeys compares an object of the schema with the values at the same path.
func compareKeys(t *testing.T, path string, s *valuesSchema, values map[string]any) {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("%s: the schema accepts keys that it does not have", path)
	}
	want := slices.Sorted(maps.Keys(s.Properties))
	if got := slices.Sorted(maps.Keys(values)); !slices.Equal(got, want) {
		t.Errorf("%s: the values have the keys %v, the schema has %v", path, got, want)
	}
	for name, property := range s.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		if property.Description == "" {
			t.Errorf("%s has no description", at)
		}
		if property.Properties != nil && property.Type == "object" {
			if inner, ok := values[name].(map[string]any); ok {
				compareKeys(t, at, property, inner)
			} else {
				t.Errorf("%s is not an object in the values", at)
			}
		}
	}
}

// The comments in README.md between which the table of values is.
const tableBegin, tableEnd = "<!-- values:begin -->\n", "<!-- values:end -->\n"

// TestChart_readme checks that the table in the README has the values of the chart.
func TestChart_readme(t *testing.T) {
	needsDeploy(t, "short", "full", "write")
	path := filepath.Join(chartDir, "README.md")
	text, err := os.ReadFile(path)
	expect.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s does not have the comments around the table", path)
	}
	root := readSchema(t)
	delete(root.Properties, "global")
	rows := appendRows(nil, "", root, readValues(t))
	checkFile(t, path, before+tableBegin+"| value | default | meaning |\n|---|---|---|\n"+strings.Join(rows, "")+
		tableEnd+after)
}

// appendRows appends the rows of the values at a path, in alphabetical order.
func appendRows(rows []string, path string, s *valuesSchema, values map[string]any) []string {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		at, property := strings.TrimPrefix(path+"."+name, "."), s.Properties[name]
		if inner, ok := values[name].(map[string]any); ok && property.Properties != nil && at != "config" {
			rows = appendRows(rows, at, property, inner)
			continue
		}
		text, _ := json.Marshal(values[name]) // it was decoded from YAML
		if len(text) > 200 {
			text = []byte("see values.yaml")
		}
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |\n", at, text,
			strings.ReplaceAll(property.Description, "|", "\\|")))
	}
	return rows
}

// TestChart_copies checks that the chart has copies of the dashboards and alerts: Helm reads no
// files outside of the chart.
func TestChart_copies(t *testing.T) {
	needsDeploy(t, "short", "full", "write")
	for _, pattern := range []string{"dashboards/*.json", "alerts/watershed.yaml"} {
		originals, err := filepath.Glob(filepath.Join("../../deploy", pattern))
		expect.NoError(t, err)
		copies, err := filepath.Glob(filepath.Join(chartDir, pattern))
		expect.NoError(t, err)
		for _, original := range originals {
			text, err := os.ReadFile(original)
			expect.NoError(t, err)
			checkFile(t, filepath.Join(chartDir, filepath.Dir(pattern), filepath.Base(original)), string(text))
		}
		if os.Getenv(deployVariable) != "write" && len(copies) != len(originals) {
			t.Errorf("%s: the chart has %d files, of %d: run make chart-files", pattern, len(copies), len(originals))
		}
	}
}
