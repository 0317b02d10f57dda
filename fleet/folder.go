// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// FolderOptions tune a [Folder]. The zero value, and nil, are the defaults.
type FolderOptions struct {
	// Interval is how often the folder is looked at. Default 2 seconds.
	Interval time.Duration
	// Logger is told when the folder cannot be read, and of files that are left out.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Folder is a [Directory] of kubeconfig files in one folder: a mounted Secret, or
// what an operator puts there. Every file is a cluster, that of its current context
// or of the only one that it has.
//
// A cluster has the name of its file, without an extension that is .yaml, .yml,
// .kubeconfig or .conf. Of two files that would give the same name the first in
// order counts, and the other is logged. Files whose names begin with "." or end
// with "~", and what is no file, do not count; links do as what they lead to.
//
// Files are followed as those of [Contexts] are. One that is cut off or broken is a
// cluster that cannot be reached, until it changes. A file that is removed is a
// cluster that is gone; a folder that cannot be read is not.
type Folder struct {
	path string
	opts FolderOptions
}

// NewFolder returns the directory of the kubeconfig files in a folder, which need
// not be there yet. A nil opts means the defaults.
func NewFolder(path string, opts *FolderOptions) *Folder {
	f := &Folder{path: path}
	if opts != nil {
		f.opts = *opts
	}
	if f.opts.Logger == nil {
		f.opts.Logger = slog.Default()
	}
	return f
}

// Follow tells the files. See [Directory].
func (f *Folder) Follow(ctx context.Context, tell func([]Entry)) error {
	if f.path == "" {
		return errors.New("folder of kubeconfigs: no path")
	}
	v := folderView{folder: f, told: teller{tell: tell}, files: map[string]*folderFile{}}
	poll(ctx, f.opts.Interval, v.look)
	return nil
}

// folderView is what was seen of a folder.
type folderView struct {
	folder  *Folder
	told    teller
	trouble complaint
	clashes clashes
	files   map[string]*folderFile // by name
}

type folderFile struct {
	tracked
	entry Entry // has no name before it was read
}

// nowhere reports whether there was nothing to read at the last reading.
func (f *folderFile) nowhere(path string) bool { return f.last != nil && f.last.files[path] == nil }

// look brings the view up to date.
func (v *folderView) look() (soon bool) {
	names, err := v.folder.list()
	if v.trouble.isNew(err) {
		v.folder.opts.Logger.Warn("clusters stay as they were", "err", err)
	}
	if err != nil {
		return false
	}
	for _, name := range names {
		if v.files[name] != nil {
			continue
		}
		file := &folderFile{}
		if v.told.told {
			// It was not there at the last look, so perhaps it is being written.
			file.last = &reading{files: map[string]os.FileInfo{v.folder.join(name): nil}}
		}
		v.files[name] = file
	}
	for name, file := range v.files {
		read, wait := file.due()
		soon = soon || wait
		_, listed := slices.BinarySearch(names, name)
		switch {
		case !listed && file.nowhere(v.folder.join(name)):
			delete(v.files, name)
		case !read:
		case listed:
			r := newReading()
			file.entry = v.folder.read(r, name)
			file.done(r)
		default:
			delete(v.files, name)
		}
	}
	v.told.update(v.entries())
	return soon
}

// entries has every name once.
func (v *folderView) entries() []Entry {
	defer v.clashes.done()
	entries := make([]Entry, 0, len(v.files))
	whose := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		e := v.files[name].entry
		if e.Name == "" {
			continue
		}
		if first, ok := whose[e.Name]; ok {
			if v.clashes.add(name) {
				v.folder.opts.Logger.Warn("file is left out: another one has the same name", "folder", v.folder.path, "file", name, "other", first)
			}
			continue
		}
		whose[e.Name] = name
		entries = append(entries, e)
	}
	return entries
}

// list is the names of the files that count.
func (f *Folder) list() ([]string, error) {
	all, err := os.ReadDir(f.path)
	if err != nil {
		return nil, fmt.Errorf("folder of kubeconfigs: %w", err)
	}
	var names []string
	for _, d := range all {
		name := d.Name()
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
			continue
		}
		// A link that leads nowhere counts: it is a file that cannot be read.
		if info, err := os.Stat(f.join(name)); err == nil && !info.Mode().IsRegular() {
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

func (f *Folder) join(name string) string { return filepath.Join(f.path, name) }

// read makes the entry of a file.
func (f *Folder) read(r *reading, name string) Entry {
	cfg, err := f.config(r, name)
	e := entryOf(fileCluster(name), cfg, err)
	if e.Err != nil {
		e.Err = fmt.Errorf("cluster of file %s: %w", name, e.Err)
	}
	return e
}

func (f *Folder) config(r *reading, name string) (*rest.Config, error) {
	k, err := r.kubeconfig(f.join(name))
	if err != nil {
		return nil, err
	}
	context, err := currentContext(k)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg, err := r.config(k, context)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig context %q: %w", context, err)
	}
	return cfg, nil
}

// fileCluster is the name of a file's cluster.
func fileCluster(name string) string {
	for _, ext := range []string{".yaml", ".yml", ".kubeconfig", ".conf"} {
		if short, ok := strings.CutSuffix(name, ext); ok {
			return short
		}
	}
	return name
}
