// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/wire"
)

// Folder is the folder of a cluster, for reading. Files may be written and removed meanwhile.
type Folder struct {
	Files *format.Files
	Path  string
	// Cluster is the name of the cluster, for messages.
	Cluster      string
	Keys         format.Keys
	Dictionaries *format.Dictionaries
	// Kind returns the kind of the objects of a mirror.
	Kind func(format.Identity) *wire.Kind
}

// restorer returns a restorer for a mirror.
func (f *Folder) restorer(id format.Identity) *format.Restorer {
	return &format.Restorer{Digest: format.DigestOf(id), Kind: f.Kind(id), Dictionaries: f.Dictionaries}
}

// objectRead returns a read of one object.
func (f *Folder) objectRead(id format.Identity, key string) *objectRead {
	return &objectRead{
		files: f.Files, folder: f.Path, identity: id, mirror: format.DigestOf(id), key: key, keys: f.Keys,
	}
}

// CheckIndex returns an error if a segment has no index by key that a read of an object of the
// mirror can use. "length" is the length of the segment, or -1 for the last one.
func (f *Folder) CheckIndex(id format.Identity, number uint64, length int64) error {
	_, err := f.objectRead(id, "").segment(number, length)
	return err
}
