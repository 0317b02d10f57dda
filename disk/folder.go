// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import "github.com/watershed-project/watershed/wire"

// folder is the folder of a cluster, for reading. Files may be written and removed meanwhile.
type folder struct {
	files *files
	path  string
	// cluster is the name of the cluster, for messages.
	cluster      string
	keys         Keys
	dictionaries *dictionaries
	// kind returns the kind of the objects of a mirror.
	kind func(Identity) *wire.Kind
}

// restorer returns a restorer for a mirror.
func (f *folder) restorer(id Identity) *restorer {
	return &restorer{digest: digestOf(id), kind: f.kind(id), dictionaries: f.dictionaries}
}

// objectRead returns a read of one object.
func (f *folder) objectRead(id Identity, key string) *objectRead {
	return &objectRead{files: f.files, folder: f.path, identity: id, mirror: digestOf(id), key: key, keys: f.keys}
}
