// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package terminal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// counting counts the calls of Write.
type counting struct {
	*emulator
	writes int
}

func (c *counting) Write(text []byte) (int, error) {
	c.writes++
	return c.emulator.Write(text)
}

func check(t *testing.T, e *emulator, want ...string) {
	t.Helper()
	if e.err != nil {
		t.Fatal(e.err)
	}
	if got := e.text(); got != strings.Join(want, "\n") {
		t.Errorf("the screen has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestScreen(t *testing.T) {
	e := &counting{emulator: newEmulator(10, 4)}
	s := OpenScreen(e)
	s.size = func() (int, int) { return e.columns, e.rows }
	draw := func(lines ...string) {
		t.Helper()
		e.writes = 0
		if err := s.Draw(lines); err != nil || e.writes != 1 {
			t.Errorf("%d writes, %v", e.writes, err)
		}
	}
	draw("one", "two", "three", "four")
	check(t, e.emulator, "one", "two", "three", "four")
	draw("longer than ten", "2", Red.Text("red"))
	check(t, e.emulator, "longer th…", "2", "red")
	draw("1", "2", "3", "4", "5", "6")
	check(t, e.emulator, "1", "2", "3", "4")
	if len(e.scrolled) > 0 || !e.hidden {
		t.Errorf("scrolled: %q, hidden cursor: %v", e.scrolled, e.hidden)
	}
	s.Close()
	if e.hidden {
		t.Error("the cursor stays hidden")
	}
}

func TestArea(t *testing.T) {
	e := newEmulator(12, 5)
	a := NewArea(e)
	a.size = func() (int, int) { return e.columns, e.rows }
	set := func(lines ...string) {
		t.Helper()
		if err := a.Set(lines); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(a, "log 1")
	check(t, e, "log 1")
	set("bar a", "bar b")
	check(t, e, "log 1", "bar a", "bar b")
	fmt.Fprintln(a, "2")
	check(t, e, "log 1", "2", "bar a", "bar b")
	set("bar a longer than it", "b")
	check(t, e, "log 1", "2", "bar a longe…", "b")
	set("a")
	check(t, e, "log 1", "2", "a")
	fmt.Fprintln(a, "log 3\nlog 4")
	check(t, e, "2", "log 3", "log 4", "a")
	set("1", "2", "3", "4", "5", "6") // one row is for the cursor
	check(t, e, "1", "2", "3", "4")
	set()
	fmt.Fprintln(a, "end")
	check(t, e, "end")
	if want := []string{"log 1", "2", "log 3",
		"log 4"}; strings.TrimSpace(strings.Join(e.scrolled, "|")) != strings.Join(want, "|") {
		t.Errorf("%q scrolled, want %q", e.scrolled, want)
	}
}

// Log lines and pictures come from several goroutines.
func TestArea_concurrent(t *testing.T) {
	e := newEmulator(80, 200)
	a := NewArea(e)
	a.size = func() (int, int) { return e.columns, e.rows }
	var running sync.WaitGroup
	for g := range 4 {
		running.Go(func() {
			for i := range 10 {
				fmt.Fprintf(a, "line %d of %d\n", i, g)
				_ = a.Set([]string{"bar", "bar"}[:i%3%2+1])
			}
		})
	}
	running.Wait()
	_ = a.Set(nil)
	if n := strings.Count(e.text(), "line "); n != 40 || e.err != nil || strings.Contains(e.text(), "bar") {
		t.Errorf("%d lines, %v:\n%s", n, e.err, e.text())
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		line    string
		columns int
		want    string
	}{
		{"short", 5, "short"},
		{"shorter", 5, "shor…"},
		{"größer", 6, "größer"},
		{"größer", 4, "grö…"},
		{"a\tb\nc\x1b[2Jd", 20, "a b c [2Jd"},
		{Red.Text("red") + " and", 7, "\x1b[31mred\x1b[0m and"},
		{Red.Text("redder"), 3, "\x1b[31mre…\x1b[0m"},
		{"", 3, ""},
	} {
		if got := Fit(c.line, c.columns); got != c.want {
			t.Errorf("%q in %d columns is %q, want %q", c.line, c.columns, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		line    string
		columns int
		want    string
	}{
		{"short", 20, "short"},
		{"one two three four five six", 14, "one two three|  four five|  six"},
		{"one two three", 13, "one two three"},
		{"one two three", 12, "one two|  three"},
		{"0123456789abcdefghijklmnop", 10, "0123456789|  abcdefgh|  ijklmnop"},
		{"größer größer größer", 13, "größer größer|  größer"},
		{"a b", 1, "a b"},
	} {
		lines := Wrap(c.line, c.columns, "  ")
		if got := strings.Join(lines, "|"); got != c.want {
			t.Errorf("%q in %d columns is %q, want %q", c.line, c.columns, got, c.want)
		}
	}
}

func TestIs(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if Is(f) || Is(&bytes.Buffer{}) || HasColor(f) {
		t.Error("a file or a buffer is taken for a terminal")
	}
	if columns, rows := Size(f); columns != 80 || rows != 24 {
		t.Errorf("the size of a file is %d by %d", columns, rows)
	}
}
