// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets_test

import (
	"strings"
	"testing"

	"github.com/watershed-project/watershed/conformance/snippets"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		want, got string
		equal     bool
	}{
		{"", "", true},
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a\nb", false},
		{"a b   c", "a   b c", true},
		{"…", "", true},
		{"…", "a\nb", true},
		{"…\nlast", "a\nlast", true},
		{"…\nlast", "a\nlast\nb", false},
		{"first\n…\nlast", "first\nlast", true},
		{"first\n…\nlast", "first\na\nlost", false},
		{"… level=INFO msg=x …", "time=1 level=INFO msg=x a=b", true},
		{"… level=INFO msg=x …", "time=1 level=WARN msg=x a=b", false},
		{"AGE 3d", "AGE 12s", true},
		{"AGE 3d", "AGE old", false},
		{"web-86d8686cfb-4sxkb Running", "web-6d9c5b8f47-2xkqj Running", true},
		{"web-86d8686cfb-4sxkb Running", "web-6d9c5b8f47-2xkqj Pending", false},
		{"v1.37.1 at 127.0.0.1:7443", "v1.36.0 at 127.0.0.1:34567", true},
		{"62/62 229 231Ki", "60/60 218 1.5Mi", true},
		{"0.5 MB", "1.2 MB", true},
		{"1 failed", "2 failed", false},
		{"a.c", "abc", false},
	} {
		if got := snippets.Match(lines(tt.want), lines(tt.got)); got != tt.equal {
			t.Errorf("%q and %q: %v", tt.want, tt.got, got)
		}
	}
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestParse(t *testing.T) {
	page := "# Page\n```go\n$ not a command\n```\n```console\n$ one\nout\n\n$ two    # keep it running\n```\n" +
		"text\n```console\n$ three \\\n  more\nout\n$ four # exits with 12\n```\n"
	got, n, err := snippets.Parse(page)
	expect.NoError(t, err)
	expect.Equal(t, n, 2)
	expect.Equal(t, got, []snippets.Command{
		{Line: 6, Snippet: 1, Text: "one", Want: []string{"out", ""}},
		{Line: 9, Snippet: 1, Text: "two    # keep it running", Stays: true},
		{Line: 13, Snippet: 2, Text: "three \\\n  more", Want: []string{"out"}},
		{Line: 16, Snippet: 2, Text: "four # exits with 12", Status: 12},
	})
	got, n, err = snippets.Parse("```go\n// a/b.go\npackage b\n\n// c.go is not a file\n```\n" +
		"```go\n// not a file\n```\n")
	expect.NoError(t, err)
	expect.Equal(t, n, 1)
	expect.Equal(t, got, []snippets.Command{{
		Line: 1, Snippet: 1,
		Text: "mkdir -p a && cat > a/b.go <<'END OF FILE'\npackage b\n\n// c.go is not a file\nEND OF FILE",
	}})
	for _, wrong := range []string{"```console\noutput\n```\n", page + "```console\noutput\n```\n"} {
		if _, _, err := snippets.Parse(wrong); err == nil {
			t.Errorf("output without a command is accepted in\n%s", wrong)
		}
	}
}

// TestShell checks that commands share a folder and variables, that Run returns the exit status of the
// command, and that Close interrupts a command that keeps running.
func TestShell(t *testing.T) {
	s, err := snippets.NewShell(t.TempDir(), []string{"PATH=/usr/bin:/bin", "A=1"})
	expect.NoError(t, err)
	for _, tt := range []struct {
		command string
		want    []string
		status  int
	}{
		{"mkdir d && cd d && B=2 && export B", nil, 0},
		{"echo $A $B; basename $PWD", []string{"1 2", "d"}, 0},
		{"printf 'no end of line'", []string{"no end of line"}, 0},
		{"echo wrong >&2; (exit 3)", []string{"wrong"}, 3},
		{"cat", nil, 0},
	} {
		got, status, err := s.Run(t.Context(), tt.command)
		expect.NoError(t, err)
		expect.Equal(t, got, tt.want)
		expect.Equal(t, status, tt.status)
	}
	printed := "trap 'touch interrupted; exit' INT; basename $PWD; echo $B; while :; do sleep 0.1; done"
	got, err := s.Start(t.Context(), `bash -c "`+strings.ReplaceAll(printed, "$", `\$`)+`"    # keep it running`,
		func(lines []string) bool { return len(lines) == 2 })
	expect.NoError(t, err)
	expect.Equal(t, got, []string{"d", "2"})
	if _, err := s.Start(t.Context(), "false", func([]string) bool { return false }); err == nil {
		t.Error("a command that has ended is waited for")
	}
	expect.NoError(t, s.Close())
}
