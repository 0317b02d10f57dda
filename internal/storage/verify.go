// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
)

// Report is the result of [Verify].
type Report struct {
	// InUse means that a process has the directory open. Files may change during the
	// verification, and a mirror that is being written may be reported as damaged.
	InUse    bool
	Clusters []reader.ClusterReport
	// Dictionaries is the number of dictionaries, and DictionaryBytes their size.
	Dictionaries    int
	DictionaryBytes int64
}

// Verify reads all files of a directory and checks them. It changes nothing. Keys decrypts
// encrypted mirrors and may be nil; without it their objects are not checked.
func Verify(path string, keys format.Keys) (*Report, error) {
	if _, err := checkFormat(path); err != nil {
		return nil, fmt.Errorf("disk: directory %s: %w", path, err)
	}
	r := &Report{}
	if f, err := os.Open(filepath.Join(path, lockFile)); err == nil {
		r.InUse = format.Lock(f) != nil
		_ = f.Close() // it also unlocks
	}
	s := &format.Files{}
	dictionaries := format.NewDictionaries(s, filepath.Join(path, dictionariesFolder), keys, func() {})
	if entries, err := os.ReadDir(filepath.Join(path, dictionariesFolder)); err == nil {
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				r.Dictionaries, r.DictionaryBytes = r.Dictionaries+1, r.DictionaryBytes+info.Size()
			}
		}
	}
	folders, err := clusterFolders(path)
	if err != nil {
		return nil, fmt.Errorf("disk: directory %s: %w", path, err)
	}
	for _, path := range folders {
		f := &reader.Folder{Files: s, Path: path, Keys: keys, Dictionaries: dictionaries, Kind: format.KindOf}
		r.Clusters = append(r.Clusters, f.Verify())
	}
	return r, nil
}
