// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPick_takesTheNewestRelease(t *testing.T) {
	all := []string{"v1.30.9", "v1.31.0", "v1.31.2", "v1.31.10", "v1.31.11-rc.0", "v1.32.0-alpha.1", "v1.32.1"}
	got, err := pick(all, []string{"1.31", "1.32", "1.31.0"})
	if want := []string{"v1.31.10", "v1.32.1", "v1.31.0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := pick(all, []string{"1.29"}); err == nil {
		t.Errorf("a version without a release gave %v", got)
	}
}

func TestRow_readsCounts(t *testing.T) {
	r := row{version: "v1.33.1", build: passed, chaos: passed}
	page := "# What\n\n10 of 14 requests equal\n\n12 of 14 requests equal with\n\n## Differences\n\n### Writes\n\n- " +
		"`a`\n- `b`\n\n### Not intended\n\nThese are errors.\n\n- `c`: x\n- `d`: y\n" +
		"\n## Differences with\n\n### Health\n\n- `e`\n\n### Not intended\n\nThese are errors.\n\n- `f`: x\n"
	r.read([]byte("    kubectl_test.go:125: 228 of 230 commands print the same, in 3.1s\n"), []byte(page))
	if want := "| v1.33.1 | pass | 10 of 14 | 3 | 228 of 230 | pass |"; r.String() != want {
		t.Errorf("got  %s\nwant %s", r, want)
	}
}

func TestReason_isTheLastComplaint(t *testing.T) {
	out := "=== RUN   TestChaos\n    chaos_test.go:53: round 1 | fine\n    chaos_test.go:54: pods differ | by " +
		"one\n--- FAIL: TestChaos\n"
	if got, want := reason([]byte(out)), "pods differ / by one"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInsert_replacesTheMinorVersion(t *testing.T) {
	text := "above\n" + begin + "\n" + heading +
		"| v1.37.1 | pass | 1 of 1 | 0 | 1 of 1 | pass | 2026-11-15 |\n" +
		"| v1.31.0 | pass | 1 of 2 | 1 | 1 of 1 | pass | 2026-11-15 |\n" + end + "\nbelow\n"
	day := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	for _, v := range []string{"v1.31.4", "v1.34.2"} {
		var err error
		if text, err = insert(text, row{
			version: v, build: passed, requests: "2 of 2", unexplained: "0", commands: "1 of 1", chaos: passed,
		}, day); err != nil {
			t.Fatal(err)
		}
	}
	want := "above\n" + begin + "\n" + heading +
		"| v1.37.1 | pass | 1 of 1 | 0 | 1 of 1 | pass | 2026-11-15 |\n" +
		"| v1.34.2 | pass | 2 of 2 | 0 | 1 of 1 | pass | 2026-11-16 |\n" +
		"| v1.31.4 | pass | 2 of 2 | 0 | 1 of 1 | pass | 2026-11-16 |\n" + end + "\nbelow\n"
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if _, err := insert("no table", row{}, day); err == nil || !strings.Contains(err.Error(), "no table") {
		t.Errorf("a page without a table gave %v", err)
	}
}
