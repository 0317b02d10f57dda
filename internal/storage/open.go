// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

const (
	lockFile           = "LOCK"
	formatFile         = "FORMAT"
	clustersFolder     = "clusters"
	dictionariesFolder = "dictionaries"
)

// ErrInUse is returned by [Open] for a directory that another process has open.
var ErrInUse = errors.New("another process uses the directory")

// Open opens a directory, which is created if it does not exist. Only one process at a time can
// have it open. Nothing is written before [Directory.Run].
func Open(path string, opts Options) (*Directory, error) {
	d := &Directory{
		opened: time.Now(),
		path:   path, opts: opts, limits: defaultLimits,
		syncNow: make(chan struct{}, 1), jobs: make(chan *stateJob, 1),
	}
	d.opts.Buffer = cmp.Or(max(0, opts.Buffer), 64<<20)
	d.opts.Window = cmp.Or(max(0, opts.Window), 5*time.Minute)
	d.opts.WindowBytes = cmp.Or(max(0, opts.WindowBytes), 10<<30)
	d.opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	d.ledger = newLedger(&d.limits, d.opts.Buffer, d.opts.Logger)
	wake := func() { notify(d.syncNow) }
	d.dictionaries = format.NewDictionaries(&d.files, filepath.Join(path, dictionariesFolder), d.opts.Keys, wake)
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("disk: directory %s: %w", path, err)
	}
	return d, nil
}

func (d *Directory) open() error {
	if err := os.MkdirAll(d.path, format.FolderMode); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.path, lockFile), os.O_RDWR|os.O_CREATE, format.FileMode)
	if err != nil {
		return err
	}
	if err := format.Lock(f); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrInUse, err), f.Close())
	}
	version, err := checkFormat(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, f.Close())
	}
	if version != format.Version {
		// An older program must refuse the directory before this one writes to it.
		text := fmt.Appendf(nil, "watershed %d\n", format.Version)
		path := filepath.Join(d.path, formatFile)
		err = d.files.Replace(path, func(write func([]byte) error) error { return write(text) })
		if err != nil {
			return errors.Join(err, f.Close())
		}
	}
	folder := filepath.Join(d.path, dictionariesFolder)
	if all, err := format.List(folder); err == nil {
		removeUnfinished(folder, all.Unfinished)
	}
	d.lock = f
	return nil
}

// checkFormat returns the version of a directory, and an error if this program does not
// support it.
func checkFormat(path string) (version uint32, err error) {
	path = filepath.Join(path, formatFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(string(text), "watershed %d\n", &version); err != nil {
		return 0, fmt.Errorf("%s is not the format of a directory of this program", path)
	}
	if version > format.Version {
		return 0, &format.NewerError{Path: path, Version: version}
	}
	return version, nil
}

// Close releases the directory. Run must have returned.
func (d *Directory) Close() error { return d.lock.Close() }

// Cluster returns the files of a cluster. The first call reads the index of its files:
// the footers of its snapshots, and the log since the oldest state that a mirror needs.
// Errors are returned by [Mirror.Load].
func (d *Directory) Cluster(name string) *Cluster {
	c := d.ledger.cluster(name, func() *Cluster { return newCluster(d, name) })
	c.once.Do(c.open)
	return c
}

// Has reports whether there are files of a cluster.
func (d *Directory) Has(cluster string) bool {
	info, err := os.Stat(filepath.Join(d.path, clustersFolder, clusterFolder(cluster)))
	return err == nil && info.IsDir()
}

// Remove removes all files of a cluster, which must not have open mirrors.
func (d *Directory) Remove(cluster string) error {
	c, err := d.ledger.forget(cluster)
	if err != nil {
		return err
	}
	if c != nil {
		c.exchange(nil)
	}
	if err := os.RemoveAll(filepath.Join(d.path, clustersFolder, clusterFolder(cluster))); err != nil {
		return fmt.Errorf("disk: cluster %s: %w", cluster, err)
	}
	return nil
}

// Stats are those of package disk.
type Stats struct {
	Batches, Changes, Snapshots, Bytes, Syncs int64

	Queued      int64
	Dropped     uint64
	Behind      int
	Errors      uint64
	LastError   error
	LastErrorAt time.Time
}

// Stats returns the counters.
func (d *Directory) Stats() Stats {
	s := d.ledger.stats()
	s.Bytes, s.Syncs = d.written.Load(), d.syncs.Load()
	return s
}

// createFolder creates the directory of a cluster, and syncs the directories above it. The first
// call does so even if the directory exists, and so does a call after one that has failed.
func (d *Directory) createFolder(folder string) error {
	d.folders.Lock()
	defer d.folders.Unlock()
	if _, err := os.Stat(folder); err == nil && d.foldersSynced {
		return nil
	}
	if err := os.MkdirAll(folder, format.FolderMode); err != nil {
		return err
	}
	all := filepath.Dir(folder)
	err := errors.Join(d.files.SyncFolder(all), d.files.SyncFolder(filepath.Dir(all)))
	d.foldersSynced = err == nil
	return err
}

// clusterFolders returns the folders of all clusters.
func clusterFolders(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(path, clustersFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			all = append(all, filepath.Join(path, clustersFolder, e.Name()))
		}
	}
	return all, err
}
