// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// TestDirectory_verify stores a resource in a directory with a key, and verifies it, also after its
// files were damaged.
func TestDirectory_verify(t *testing.T) {
	path, key := t.TempDir(), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := KeysFromFile(key)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(path, &Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	id := storage.Identity{Cluster: "uid-1", Version: "v1", Resource: "secrets", Kind: "Secret", Encoding: "JSON"}
	m, err := d.Storage().Cluster("east").Mirror(id, storage.MirrorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Append(storage.Batch{State: store.New((*wire.Object).Key, nil).Snapshot()})
	ended, end := context.WithCancel(t.Context())
	end()
	if err := d.Run(ended); err != nil {
		t.Fatal(err)
	}
	if is := d.Stats(); is.Snapshots != 1 || is.Bytes == 0 || is.LastError != nil {
		t.Errorf("%+v", is)
	}
	if r := verify(t, path, keys); !r.InUse || len(r.Clusters) != 1 || r.Clusters[0].Name != "east" ||
		r.Clusters[0].Resources != 1 || r.Clusters[0].Bytes == 0 || r.Clusters[0].Since.IsZero() ||
		r.Clusters[0].Err != nil {
		t.Errorf("%+v", r)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(path, "clusters", "*", "log-*"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	content, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	content[40]++
	if err := os.WriteFile(segments[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, path, keys); r.InUse || len(r.Clusters) != 1 || r.Clusters[0].Err == nil {
		t.Errorf("damaged: %+v", r)
	}
	if none := (*Directory)(nil).Storage(); none != nil {
		t.Error("no directory has files")
	}
}

func verify(t *testing.T, path string, keys Keys) *Report {
	t.Helper()
	r, err := Verify(path, keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKeys_malformed(t *testing.T) {
	for _, text := range []string{"", "\n", "short", base64.StdEncoding.EncodeToString(make([]byte, 16))} {
		t.Setenv("WATERSHED_TEST_KEY", text)
		if _, err := KeysFromEnv("WATERSHED_TEST_KEY"); err == nil ||
			!strings.Contains(err.Error(), "WATERSHED_TEST_KEY") {
			t.Errorf("%q is a key: %v", text, err)
		}
	}
	t.Setenv("WATERSHED_TEST_KEY", base64.StdEncoding.EncodeToString(make([]byte, 32)))
	if _, err := KeysFromEnv("WATERSHED_TEST_KEY"); err != nil {
		t.Error(err)
	}
	if _, err := KeysFromFile(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent file has a key")
	}
}
