// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package exposition_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/exposition"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/metrics"
)

var update = flag.Bool("update", false, "write the tables of the documentation")

// document is the page with the tables.
const document = "../../../../docs/operations/metrics.md"

// table returns definitions as a table.
func table(all []*metrics.Definition) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, d := range all {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, strings.Join(d.Labels, ", "), d.Help)
	}
	return b.String()
}

// replace replaces the text between the two comments with a name.
func replace(t *testing.T, page, name, text string) string {
	t.Helper()
	begin, end := "<!-- "+name+": go test ./cmd/watershed/internal/exposition -update -->\n", "<!-- end -->\n"
	head, rest, ok := strings.Cut(page, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("the page has no %q", begin)
	}
	return head + begin + text + end + tail
}

// TestDocument compares the tables of the documentation with the definitions.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	expect.NoError(t, err)
	page := string(text)
	want := replace(t, page, "program", table(exposition.Definitions()))
	want = replace(t, want, "informers", table(metrics.InformerDefinitions()))
	if *update {
		expect.NoError(t, os.WriteFile(document, []byte(want), 0o644))
		page = want
	}
	if page != want {
		t.Error("the tables of metrics.md are not those of the code: run go test ./cmd/watershed/internal/exposition " +
			"-update")
	}
}

// TestDefinitions checks the names by the rules of Prometheus, and that each is defined once.
func TestDefinitions(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range exposition.Definitions() {
		if seen[d.Name] {
			t.Errorf("%s is defined twice", d.Name)
		}
		seen[d.Name] = true
		if strings.HasSuffix(d.Name, "_total") != (d.Kind == metrics.Counter) {
			t.Errorf("%s is a %s", d.Name, d.Kind)
		}
		if !strings.HasPrefix(d.Name, "watershed_") || !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%s: %s", d.Name, d.Help)
		}
	}
}
