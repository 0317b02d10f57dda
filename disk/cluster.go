// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/watershed-project/watershed/disk/internal/format"
	"github.com/watershed-project/watershed/disk/internal/reader"
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
		mirrors: map[format.Digest]*Mirror{}, mismatched: map[format.Digest]Identity{},
	}
	c.past = &reader.Folder{
		Files: &d.files, Path: c.folder, Cluster: name, Keys: d.opts.Keys, Dictionaries: d.dictionaries, Kind: c.kindOf,
	}
	return c
}

// open reads the index of the cluster.
func (c *Cluster) open() {
	d := c.directory
	x, err := reader.ReadIndex(&d.files, c.folder)
	c.index, c.problem, c.unclaimed = x, err, map[format.Digest]*unclaimed{}
	if newer := (*format.NewerError)(nil); errors.As(err, &newer) {
		c.off = err
	}
	if err == nil { // without all files, no mirror has a state that can be trusted
		for key, f := range x.Mirrors {
			c.unclaimed[key] = &unclaimed{Found: f}
		}
	}
	for _, number := range x.Torn {
		_ = os.Remove(filepath.Join(c.folder, format.SegmentName(number))) // or else the next number is used
	}
	if c.off == nil {
		removeUnfinished(c.folder, x.Unfinished)
	}
	c.log.begin(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	c.addSnapshots(x)
	c.opened, c.newest = true, x.Newest
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
	key, d := format.DigestOf(id), c.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := c.unclaimed[key]; f != nil && f.Base != 0 {
		return true
	}
	if m := c.mirrors[key]; m != nil && m.base != 0 {
		return true
	}
	_, damaged := c.index.DamagedSnapshot(key)
	return damaged != nil
}

// Mirror returns the handle of a mirror, which must not be open. It does not read files.
// A stored mirror of the same objects with another identity is not needed for a restart any
// more: its files are removed as those of the past are. Until then it can be opened again.
func (c *Cluster) Mirror(id Identity, opts MirrorOptions) (*Mirror, error) {
	if opts.Kind == nil {
		opts.Kind = format.KindOf(id)
	}
	if opts.Kind.GroupVersionKind != format.KindOf(id).GroupVersionKind {
		return nil, fmt.Errorf("disk: %v: kind %v is not that of the identity", id, opts.Kind.GroupVersionKind)
	}
	m := &Mirror{cluster: c, id: id, digest: format.DigestOf(id), opts: opts}
	d := c.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := c.mirrors[m.digest]; other != nil {
		if !other.closed {
			return nil, fmt.Errorf("disk: %v is already open", id)
		}
		d.dropLocked(other, nil)
		other.forgetLocked()
		m.base, m.baseBytes, m.snapshot, m.written = other.base, other.baseBytes, other.snapshot, other.written
	}
	switch {
	case c.off != nil:
		m.status.Err = c.off
	case c.problem != nil:
		m.status.Err = c.problem
	case format.Sealed(id) && d.opts.Keys == nil:
		m.status.Err, m.closed = format.ErrLocked, true
	}
	for key, f := range c.unclaimed {
		if key != m.digest && replaces(id, f.Identity) {
			c.mismatched[m.digest], f.replaced = f.Identity, true
		}
	}
	name, damaged := c.index.DamagedSnapshot(m.digest)
	m.snapshot = cmp.Or(m.snapshot, name)
	f := c.unclaimed[m.digest]
	if f != nil {
		m.stored, m.base, m.snapshot = f, f.Base, cmp.Or(f.File(), m.snapshot)
	}
	if m.written == nil && (f != nil || damaged != nil || c.problem != nil) {
		m.written = &format.Stamp{} // what the files have is not known unless the mirror is loaded
	}
	if m.closed { // without a key
		if f != nil {
			f.replaced = true
		}
		return m, nil
	}
	delete(c.unclaimed, m.digest)
	c.mirrors[m.digest] = m
	return m, nil
}
