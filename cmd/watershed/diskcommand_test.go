// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestDisk shows, checks and removes the files of a server.
func TestDisk(t *testing.T) {
	w := newKeyClusters(t)
	dir := filepath.Join(t.TempDir(), "data")
	c := configure(t, w.one("storage.dir", dir))
	var out string
	expect.Soon(t, "files are written", func() bool {
		out, _ = command(t.Context(), "disk", "--data-dir", dir)
		return strings.Contains(out, "eu ")
	})
	if !strings.Contains(out, "A process uses the directory") {
		t.Errorf("while the server runs:\n%s", out)
	}
	if _, err := command(t.Context(), "disk", "remove", "--data-dir", dir, "eu"); err == nil ||
		!strings.Contains(err.Error(), "stop the server") {
		t.Errorf("remove while the server runs: %v", err)
	}
	expect.NoError(t, c.stopped())

	out, err := command(t.Context(), "disk", "--data-dir", dir, "--resources")
	expect.NoError(t, err)
	for _, want := range []string{"eu ", "pods ", " 40 ", "namespaces "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	t.Log(out)
	logs, err := filepath.Glob(filepath.Join(dir, "clusters", "*", "log-*"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	content, err := os.ReadFile(logs[len(logs)-1])
	expect.NoError(t, err)
	content[len(content)-1] ^= 1 // a finished segment ends with an index
	expect.NoError(t, os.WriteFile(logs[len(logs)-1], content, 0o600))
	out, err = command(t.Context(), "disk", "--data-dir", dir)
	expect.NoError(t, err)
	if !strings.Contains(out, "note: cluster eu: damaged indexes in the log: 1; nothing is lost") {
		t.Errorf("a damaged index:\n%s", out)
	}
	content, err = os.ReadFile(logs[0])
	expect.NoError(t, err)
	content[len(content)/2] ^= 1
	expect.NoError(t, os.WriteFile(logs[0], content, 0o600))
	if out, err := command(t.Context(), "disk", "--data-dir", dir); err == nil ||
		!strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file: %v\n%s", err, out)
	}

	if _, err := command(t.Context(), "disk", "remove", "--data-dir", dir, "mars"); err == nil ||
		!strings.Contains(err.Error(), "mars") {
		t.Errorf("remove an unknown cluster: %v", err)
	}
	t.Setenv("WATERSHED_DATA_KMS", "unix:///no/plugin") // a key is not needed to remove files
	out, err = command(t.Context(), "disk", "remove", "--data-dir", dir, "eu")
	expect.NoError(t, err)
	t.Setenv("WATERSHED_DATA_KMS", "")
	if out != "removed the files of eu\n" {
		t.Errorf("remove prints %q", out)
	}
	if out, err := command(t.Context(), "disk", "--data-dir", dir); err != nil || strings.Contains(out, "eu ") {
		t.Errorf("after the removal: %v\n%s", err, out)
	}
}
