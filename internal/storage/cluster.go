// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/wire"
)

// clusterFolder returns the name of a cluster's folder. Names of clusters may be long and
// may have any character.
func clusterFolder(name string) string {
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%.100s-%x", safe, sum[:8])
}

// newCluster returns a cluster that is not opened yet.
func newCluster(d *Directory, name string) *Cluster {
	c := &Cluster{
		directory: d, name: name, folder: filepath.Join(d.path, clustersFolder, clusterFolder(name)),
		entry: clusterEntry{mirrors: map[format.Digest]*Mirror{}, mismatched: map[format.Digest]Identity{}},
	}
	c.past = &reader.Folder{
		Files: &d.files, Path: c.folder, Cluster: name, Keys: d.opts.Keys, Dictionaries: d.dictionaries,
		Kind: func(id Identity) *wire.Kind { return d.ledger.kindOf(c, id) },
	}
	return c
}

// open reads the index of the cluster.
func (c *Cluster) open() {
	d := c.directory
	x, err := reader.ReadIndex(&d.files, c.folder)
	c.index, c.problem = x, err
	stored := map[format.Digest]*unclaimed{}
	if newer := (*format.NewerError)(nil); errors.As(err, &newer) {
		c.off = err
	}
	if err == nil { // without all files, no mirror has a state that can be trusted
		for key, f := range x.Mirrors {
			stored[key] = &unclaimed{Found: f}
		}
	}
	for _, number := range x.Torn {
		_ = os.Remove(filepath.Join(c.folder, format.SegmentName(number))) // or else the next number is used
	}
	if c.off == nil {
		removeUnfinished(c.folder, x.Unfinished)
	}
	c.log.begin(c)
	d.ledger.opened(c, stored, storedSnapshots(c.folder, x))
}

// removeUnfinished removes files of a folder whose writing was interrupted by the end of the
// process.
func removeUnfinished(folder string, names []string) {
	for _, name := range names {
		_ = os.Remove(filepath.Join(folder, name)) // or else the next process does
	}
}

// Has reports whether there is a complete state of a mirror, readable or damaged. It does not
// read files.
func (c *Cluster) Has(id Identity) bool {
	key := format.DigestOf(id)
	if c.directory.ledger.has(c, key) {
		return true
	}
	_, damaged := c.index.DamagedSnapshot(key)
	return damaged != nil
}

// Mirror returns the handle of a mirror, which must not be open. It does not read files.
// A stored mirror of the same objects with another identity is not needed for a restart any
// more: its files are removed as those of the past are. Until then it can be opened again.
func (c *Cluster) Mirror(id Identity, opts MirrorOptions) (*Mirror, error) {
	known := format.KindOf(id)
	opts.Kind = cmp.Or(opts.Kind, known)
	if opts.Kind.GroupVersionKind != known.GroupVersionKind {
		return nil, fmt.Errorf("disk: %v: kind %v is not that of the identity", id, opts.Kind.GroupVersionKind)
	}
	m := &Mirror{cluster: c, id: id, digest: format.DigestOf(id), opts: opts}
	if err := c.directory.ledger.openMirror(c, m); err != nil {
		return nil, err
	}
	return m, nil
}
