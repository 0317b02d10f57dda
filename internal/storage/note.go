// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// noteFile is the name of the file with the note of a cluster. A program that does not know notes
// leaves it alone: the name is neither that of a segment nor of a snapshot.
const noteFile = "note"

// notePath returns the path of the note of a cluster.
func (d *Directory) notePath(cluster string) string {
	return filepath.Join(d.path, clustersFolder, clusterFolder(cluster), noteFile)
}

// Note returns the note of a cluster, nil if there is none. The error means that the file is
// damaged, of a newer format, or cannot be read.
func (d *Directory) Note(cluster string) ([]byte, error) {
	path := d.notePath(cluster)
	b, err := d.files.ReadAll(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil:
		b, err = format.ParseNote(path, b)
	}
	if err != nil {
		return nil, fmt.Errorf("disk: note of cluster %s: %w", cluster, err)
	}
	return b, nil
}

// WriteNote keeps a text of the caller beside the files of a cluster, instead of the one before.
// After a crash one of the two is there, completely. A note of a newer format is left as it is,
// and the result is an error. Notes of one cluster must not be written or removed concurrently.
func (d *Directory) WriteNote(cluster string, content []byte) error {
	if _, err := d.Note(cluster); errors.As(err, new(*format.NewerError)) {
		return err
	}
	folder := d.Cluster(cluster).folder // an open cluster is not removed
	err := d.createFolder(folder)
	if err == nil {
		b := format.NoteOf(content)
		err = d.files.Replace(d.notePath(cluster), func(write func([]byte) error) error { return write(b) })
	}
	if err != nil {
		return fmt.Errorf("disk: note of cluster %s: %w", cluster, err)
	}
	return nil
}

// RemoveNote removes the note of a cluster, if there is one.
func (d *Directory) RemoveNote(cluster string) error {
	path := d.notePath(cluster)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.files.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("disk: note of cluster %s: %w", cluster, err)
	}
	return nil
}
