// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// TestNote_lastsUntilItIsRemoved writes, replaces and removes a note. The mirrors of the cluster
// are as they were.
func TestNote_lastsUntilItIsRemoved(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	stop := run(t, d)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.fill(10)
	waitStored(t, w)
	if note, err := d.Note("east"); note != nil || err != nil {
		t.Fatalf("%q, %v before the first note", note, err)
	}
	for _, text := range []string{"first", "", "second"} {
		must(t, d.WriteNote("east", []byte(text)))
		if note, err := d.Note("east"); err != nil || string(note) != text {
			t.Errorf("the note is %q, %v, and %q was written", note, err, text)
		}
	}
	must(t, d.WriteNote("west", []byte("without mirrors")))
	stop()
	must(t, d.Close())

	d = openDirectory(t, path, nil)
	if note, err := d.Note("east"); err != nil || string(note) != "second" {
		t.Errorf("after a restart the note is %q, %v", note, err)
	}
	if _, err := openMirror(t, d, identify("configmaps"), MirrorOptions{}).Load(0); err != nil {
		t.Errorf("the mirror beside the note: %v", err)
	}
	for range 2 {
		must(t, d.RemoveNote("east"))
	}
	if note, err := d.Note("east"); note != nil || err != nil {
		t.Errorf("%q, %v after the note was removed", note, err)
	}
}

// TestNote_damaged flips each bit of a note, and truncates it everywhere.
func TestNote_damaged(t *testing.T) {
	d := openDirectory(t, t.TempDir(), nil)
	must(t, d.WriteNote("east", []byte("the content")))
	path := filepath.Join(d.Cluster("east").folder, noteFile)
	good, err := os.ReadFile(path)
	must(t, err)
	reject := func(what string, at int, content []byte) {
		must(t, os.WriteFile(path, content, format.FileMode))
		if note, err := d.Note("east"); err == nil || note != nil {
			t.Errorf("%s %d: the note is %q, %v", what, at, note, err)
		}
	}
	for i := range good {
		reject("truncated at", i, good[:i])
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			reject("flipped in byte", i, bad)
		}
	}
	newer := append(format.NewHead(format.NoteMagic, format.Version+1), good[format.HeadSize:]...)
	must(t, os.WriteFile(path, newer, format.FileMode))
	if _, err := d.Note("east"); !errors.As(err, new(*format.NewerError)) {
		t.Errorf("the error for a newer format is %v", err)
	}
}

// TestNote_ofANewerProgram leaves a note of a newer format as it is.
func TestNote_ofANewerProgram(t *testing.T) {
	d := openDirectory(t, t.TempDir(), nil)
	must(t, d.WriteNote("east", []byte("old")))
	path := d.notePath("east")
	newer := append(format.NewHead(format.NoteMagic, format.Version+1), "of another layout"...)
	must(t, os.WriteFile(path, newer, format.FileMode))
	if err := d.WriteNote("east", []byte("new")); !errors.As(err, new(*format.NewerError)) {
		t.Errorf("the error is %v", err)
	}
	if content, err := os.ReadFile(path); err != nil || !bytes.Equal(content, newer) {
		t.Errorf("the note is %q, %v", content, err)
	}
	must(t, os.WriteFile(path, []byte("damaged"), format.FileMode))
	must(t, d.WriteNote("east", []byte("new")))
}

// TestNote_foldersAreSynced syncs the directories above that of a cluster, which a killed process
// has created, and again if that fails.
func TestNote_foldersAreSynced(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	must(t, os.MkdirAll(d.Cluster("east").folder, format.FolderMode))
	fails, synced := true, map[string]int{}
	d.files.Fault = func(operation, name string, size int) (int, error) {
		name = strings.TrimPrefix(name, path)
		if operation == "sync" && (name == "" || name == "/"+clustersFolder) {
			if synced[name]++; fails {
				return 0, syscall.EIO
			}
		}
		return size, nil
	}
	for _, cluster := range []string{"east", "west"} {
		fails = true
		if err := d.WriteNote(cluster, []byte("text")); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", cluster, err)
		}
		fails = false
		must(t, d.WriteNote(cluster, []byte("text")))
	}
	must(t, d.WriteNote("east", []byte("again")))
	if synced[""] != 4 || synced["/"+clustersFolder] != 4 {
		t.Errorf("synced: %v", synced)
	}
}

// TestNote_failedWrite keeps the note from before if the new one cannot be written.
func TestNote_failedWrite(t *testing.T) {
	for _, operation := range []string{"create", "write", "sync", "rename"} {
		d := openDirectory(t, t.TempDir(), nil)
		must(t, d.WriteNote("east", []byte("old")))
		d.files.Fault = func(op, _ string, size int) (int, error) {
			if op == operation {
				return size / 2, syscall.ENOSPC
			}
			return size, nil
		}
		if err := d.WriteNote("east", []byte("new")); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", operation, err)
		}
		if note, err := d.Note("east"); err != nil || string(note) != "old" {
			t.Errorf("%s: the note is %q, %v", operation, note, err)
		}
	}
}
