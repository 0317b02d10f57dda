// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit

import (
	"bytes"
	"os"
	"syscall"
	"testing"
)

// A disk that accepts only a part of a batch keeps whole lines, the others are counted as
// lost, and the log goes on when there is room again.
func TestLog_survivesAFullDisk(t *testing.T) {
	l, path, _ := open(t, 1<<20, 0)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limit := before
	limit.Cur = 8192
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 999), '\n')
	for range 10 {
		l.add(line)
	}
	err := flush(l)
	if restored := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); restored != nil {
		t.Fatal(restored)
	}
	if err == nil {
		t.Error("a full disk is not an error")
	}
	if is := l.Stats(); is != (Stats{Written: 8, Dropped: 2, Bytes: 8000}) {
		t.Errorf("stats are %+v", is)
	}
	l.add([]byte("more\n"))
	if err := flush(l); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Repeat(line, 8), "more\n"...); !bytes.Equal(text, want) {
		t.Errorf("the file has %d bytes, want %d", len(text), len(want))
	}
}
