// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a log of small files, and the buffer of its messages.
func open(t *testing.T, most int64, backups int) (*Log, string, *bytes.Buffer) {
	t.Helper()
	var messages bytes.Buffer
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{
		Path: path, MaxSize: most, MaxBackups: backups, Logger: slog.New(slog.NewTextHandler(&messages, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.file.close)
	return l, path, &messages
}

// flush writes what waits.
func flush(l *Log) error {
	lines, events := l.take(nil)
	return l.write(lines, events)
}

// The newest lines are in the file, older ones in numbered files, and the oldest are gone.
// No file is larger than its limit, and no line is split.
func TestLog_rotates(t *testing.T) {
	l, path, _ := open(t, 1000, 3)
	for i := range 100 {
		l.add(fmt.Appendf(nil, "%099d\n", i))
		if i%7 == 0 || i == 99 {
			if err := flush(l); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, want 4: %v", len(files), err)
	}
	next := 60
	for _, name := range []string{path + ".3", path + ".2", path + ".1", path} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if is, err := os.Stat(name); err != nil || is.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v: %v", name, is.Mode(), err)
		}
		if len(text) > 1000 {
			t.Errorf("%s has %d bytes, want at most 1000", name, len(text))
		}
		for line := range strings.Lines(string(text)) {
			if want := fmt.Sprintf("%099d\n", next); line != want {
				t.Fatalf("%s has line %q, want %q", name, line, want)
			}
			next++
		}
	}
	if next != 100 {
		t.Errorf("the files end before line %d, want 100", next)
	}
	if is := l.Stats(); is != (Stats{Written: 100, Bytes: 10000}) {
		t.Errorf("stats are %+v", is)
	}
}

// Without old files, the file begins anew. A line that is larger than a file is written.
func TestLog_rotatesWithoutBackups(t *testing.T) {
	l, path, _ := open(t, 100, 0)
	for _, line := range []string{"a\n", strings.Repeat("b", 200) + "\n", "c\n"} {
		l.add([]byte(line))
	}
	if err := flush(l); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "c\n" {
		t.Errorf("the file has %q: %v", text, err)
	}
}

// A file that another program has moved is created again, and a torn line of an earlier
// process does not spoil the first one of this.
func TestLog_followsTheFile(t *testing.T) {
	l, path, _ := open(t, 1000, 1)
	l.add([]byte("a\n"))
	if err := flush(l); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.add([]byte("b\n"))
	if err := flush(l); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "torn\nb\n" {
		t.Errorf("the file has %q: %v", text, err)
	}
}

func TestOpen_refusesOtherFiles(t *testing.T) {
	for _, path := range []string{"", t.TempDir(), os.DevNull, filepath.Join(t.TempDir(), "none", "x")} {
		if l, err := Open(Options{Path: path}); err == nil {
			t.Errorf("%q is opened: %+v", path, l)
		}
	}
}

// slow is an output that takes lines only when the test allows it.
type slow struct{ allow chan error }

func (s slow) Write(b []byte) (int, error) {
	if err := <-s.allow; err != nil {
		return 0, err
	}
	return len(b), nil
}

// While the disk does not respond, events are dropped and counted, and no request waits.
// Losses are logged at most once a minute.
func TestLog_dropsEventsIfTheDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var messages bytes.Buffer
		disk := slow{make(chan error)}
		l := &Log{
			logger: slog.New(slog.NewTextHandler(&messages, nil)),
			out:    disk,
			wake:   make(chan struct{}, 1),
			full:   make(chan struct{}, 1),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		line := append(bytes.Repeat([]byte("x"), 1<<20-1), '\n')
		l.add(line)
		time.Sleep(time.Second) // the writer has it, and hangs
		for range 10 {
			l.add(line)
		}
		if is := l.Stats(); is.Dropped != 2 || is.Pending != 8 {
			t.Errorf("stats are %+v, want 8 pending and 2 dropped", is)
		}
		disk.allow <- nil
		disk.allow <- nil
		synctest.Wait()
		if is := l.Stats(); is.Written != 9 || is.Dropped != 2 {
			t.Errorf("stats are %+v, want 9 written", is)
		}
		for range 10 {
			l.add([]byte("y\n"))
			disk.allow <- fmt.Errorf("no space left on device")
		}
		synctest.Wait()
		if n := strings.Count(messages.String(), "events=2\n"); n != 1 || strings.Count(messages.String(), "\n") != 1 {
			t.Errorf("messages within a minute:\n%s", &messages)
		}
		time.Sleep(time.Minute)
		l.add([]byte("y\n"))
		disk.allow <- nil
		synctest.Wait()
		if !strings.Contains(messages.String(), `events=10 err="no space left on device"`) {
			t.Errorf("messages after a minute:\n%s", &messages)
		}
		l.add([]byte("last\n"))
		cancel()
		disk.allow <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
		l.add([]byte("late\n"))
		if is := l.Stats(); is.Written != 11 || is.Dropped != 13 || is.Pending != 0 {
			t.Errorf("stats at the end are %+v", is)
		}
	})
}

// The number of events in the queue is limited too.
func TestLog_limitsEvents(t *testing.T) {
	l := &Log{}
	for range maxEvents + 5 {
		l.add([]byte("\n"))
	}
	if is := l.Stats(); is.Pending != maxEvents || is.Dropped != 5 {
		t.Errorf("stats are %+v", is)
	}
}
