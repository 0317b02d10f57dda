// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/jsondiff"
)

// TestLog_fieldNames prints names and values of fields that the author of an object has chosen.
// They cannot control the terminal.
func TestLog_fieldNames(t *testing.T) {
	var out strings.Builder
	value := json.RawMessage(`"x"`)
	change := document.Change{Type: "MODIFIED", Cluster: "eu", Name: "a", Differences: []jsondiff.Difference{
		{Path: "data.\x1b]0;owned\x07\x1b[2J", New: value}, {Path: `data.a"b\c`, Old: value},
		{Path: "metadata.labels.größe", Old: value, New: value},
		{Path: "data.c1", New: json.RawMessage("\"a\u009b2J\"")},
	}}
	expect.NoError(t, (&logOptions{}).print(&out, []logged{{"configmaps", change}}))
	for _, want := range []string{`+ "data.\x1b]0;owned\a\x1b[2J": "x"`, `- data.a"b\c: "x"`,
		`metadata.labels.größe: "x" -> "x"`, `+ data.c1: "\"a\u009b2J\""`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not contain %q", out.String(), want)
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\a\u009b") {
		t.Errorf("%q has control characters", out.String())
	}
}

// TestPeriod checks how messages name the time that a command looked at.
func TestPeriod(t *testing.T) {
	const monday, tuesday = "2026-11-16T06:00:00Z", "2026-11-17T06:00:00Z"
	for _, c := range []struct{ since, until, want string }{
		{"24h", "", "in the last 24h"},
		{monday, "", "since " + monday},
		{monday, tuesday, "between " + monday + " and " + tuesday},
		{"24h", "1h", "between 24h ago and 1h ago"},
		{monday, "1h", "between " + monday + " and 1h ago"},
	} {
		if got := period(c.since, c.until); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.since, c.until, got, c.want)
		}
	}
}
