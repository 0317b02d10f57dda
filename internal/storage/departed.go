// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

const (
	// departedAfter is how long after the start of the process a cluster that is not open
	// counts as one that has left. A cluster that cannot be reached is opened later.
	departedAfter = time.Hour
	// departedEvery is how often the folders are searched for.
	departedEvery = time.Minute
)

// departedFolders returns the folders of clusters that have left. It searches for them from
// time to time.
func (d *Directory) departedFolders(now time.Time) []*departed {
	if now.Sub(d.opened) < departedAfter {
		return nil
	}
	if now.Sub(d.searched) >= departedEvery {
		d.searched, d.departed = now, nil
		folders, err := clusterFolders(d.path)
		d.ledger.report(err)
		for _, folder := range folders {
			if g := (&departed{directory: d, folder: folder}); !d.ledger.isOpen(folder) && g.measure() {
				d.departed = append(d.departed, g)
			}
		}
	}
	d.departed = slices.DeleteFunc(d.departed, func(g *departed) bool { return d.ledger.isOpen(g.folder) })
	return d.departed
}

// measure reads the size and the time of the files. It returns false if the folder must stay,
// because files are from a newer program or cannot be read.
func (g *departed) measure() bool {
	entries, err := os.ReadDir(g.folder)
	if err != nil {
		return false
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return false
		}
		g.bytes, g.time = g.bytes+info.Size(), later(g.time, info.ModTime())
		if format.Newer(&g.directory.files, filepath.Join(g.folder, e.Name())) {
			return false
		}
	}
	return true
}

// remove removes the folder, unless the cluster has been opened meanwhile. It reports whether
// the folder is gone. A call of [Directory.Cluster] waits for it.
func (g *departed) remove() bool {
	d := g.directory
	if !d.ledger.leave(g.folder) {
		return false
	}
	err := os.RemoveAll(g.folder)
	d.ledger.report(err)
	d.searched = time.Time{} // the list has changed
	d.ledger.hasLeft()
	return err == nil
}

// removeDeparted removes the folders of clusters that have left and whose files are older
// than the window, and returns the others.
func (d *Directory) removeDeparted(now time.Time) (rest []*departed) {
	cutoff := now.Add(-d.opts.Window)
	for _, g := range d.departedFolders(now) {
		if g.time.After(cutoff) || !g.remove() {
			rest = append(rest, g)
		}
	}
	return rest
}
