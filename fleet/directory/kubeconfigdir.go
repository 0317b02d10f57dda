// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

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

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
)

// KubeconfigDirOptions tune a [KubeconfigDir]. The zero value, and nil, are the defaults.
type KubeconfigDirOptions struct {
	// Logger receives a line when the directory cannot be read, and for each file that is left out.
	// Default: slog.Default().
	Logger *slog.Logger
}

// KubeconfigDir is a [fleet.Directory] of the kubeconfig files in one directory of the file
// system, such as a mounted Secret. Each file is a cluster: that of its current context, or of its only
// context.
//
// The name of a cluster is the name of its file, without the extension .yaml, .yml,
// .kubeconfig or .conf. If two files have the same name without it, the first in
// alphabetical order is used, and the other is logged. Files whose names begin with "."
// or end with "~" are ignored. So is everything that is not a regular file or a link to
// one. A file whose name a cluster cannot have, see [fleet.ValidateName], is left out and logged.
//
// The files are polled and read like those of [Kubeconfig]. A truncated or broken file
// is a cluster with an error until the file changes. If a file is removed, so is its
// cluster. If the directory cannot be read, the clusters stay as they are.
type KubeconfigDir struct {
	path   string
	poller poller
}

// NewKubeconfigDir returns the source of the kubeconfig files in a directory, which may be
// created later. A nil opts means the defaults.
func NewKubeconfigDir(path string, opts *KubeconfigDirOptions) *KubeconfigDir {
	f := &KubeconfigDir{path: path}
	var o KubeconfigDirOptions
	if opts != nil {
		o = *opts
	}
	f.poller = newPoller(o.Logger, f.String())
	return f
}

// String returns a short name of the directory for log lines and errors.
func (f *KubeconfigDir) String() string { return "directory " + f.path }

// Err returns why the clusters cannot be read at present, nil if they can be.
func (f *KubeconfigDir) Err() error { return f.poller.last.Err() }

// Follow reports the files. See [fleet.Directory].
func (f *KubeconfigDir) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	if f.path == "" {
		return errors.New("directory of kubeconfigs: no path")
	}
	v := dirView{dir: f, poller: f.poller, notifier: notifier{notify: notify}, files: map[string]*dirFile{}}
	v.poller.run(ctx, v.check)
	return nil
}

// dirView is the state of one Follow.
type dirView struct {
	dir      *KubeconfigDir
	poller   poller
	notifier notifier
	clashes  clashes
	files    map[string]*dirFile // by name
}

type dirFile struct {
	tracked
	entry fleet.Entry // without a name until the file was read
}

// missing reports whether the file did not exist when it was read last.
func (f *dirFile) missing(path string) bool { return f.last != nil && f.last.files[path] == nil }

// check reads the files that have changed.
func (v *dirView) check() (soon bool) {
	names, err := v.dir.list()
	v.poller.log(err)
	if err != nil {
		return false
	}
	for _, name := range names {
		if v.files[name] != nil {
			continue
		}
		file := &dirFile{}
		if v.notifier.notified {
			// This is not the first check, so the file is new and may still be being
			// written: let it settle.
			file.last = &fileStates{files: map[string]os.FileInfo{v.dir.join(name): nil}}
		}
		v.files[name] = file
	}
	for name, file := range v.files {
		read, wait := file.due()
		soon = soon || wait
		_, listed := slices.BinarySearch(names, name)
		switch {
		case !listed && file.missing(v.dir.join(name)):
			delete(v.files, name)
		case !read:
		case listed:
			r := newFileStates()
			file.entry = v.dir.read(r, name)
			file.done(r)
		default:
			delete(v.files, name)
		}
	}
	v.notifier.update(v.entries())
	return soon
}

// entries returns the clusters of all files, each name once.
func (v *dirView) entries() []fleet.Entry {
	defer v.clashes.done()
	entries := make([]fleet.Entry, 0, len(v.files))
	used := map[string]string{} // files by cluster name
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		e := v.files[name].entry
		if e.Name == "" {
			continue
		}
		if err := fleet.ValidateName(e.Name); err != nil {
			if v.clashes.add(name) {
				v.poller.logger.Warn("file left out: rename it", "directory", v.dir.path, "file", name, "err", err)
			}
			continue
		}
		if first, ok := used[e.Name]; ok {
			if v.clashes.add(name) {
				v.poller.logger.Warn("file left out: another file has the same cluster name",
					"directory", v.dir.path, "file", name, "used", first)
			}
			continue
		}
		used[e.Name] = name
		entries = append(entries, e)
	}
	return entries
}

// list returns the names of the files to read, sorted.
func (f *KubeconfigDir) list() ([]string, error) {
	all, err := os.ReadDir(f.path)
	if err != nil {
		return nil, fmt.Errorf("directory of kubeconfigs: %w", err)
	}
	var names []string
	for _, d := range all {
		name := d.Name()
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
			continue
		}
		// A dangling link is a file that cannot be read.
		if info, err := os.Stat(f.join(name)); err == nil && !info.Mode().IsRegular() {
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

func (f *KubeconfigDir) join(name string) string { return filepath.Join(f.path, name) }

// read returns the entry of a file.
func (f *KubeconfigDir) read(r *fileStates, name string) fleet.Entry {
	cfg, labels, err := f.config(r, name)
	e := labelled(newEntry(fileCluster(name), cfg, err), labels, nil)
	if e.Err != nil {
		e.Err = fmt.Errorf("file %s: %w", name, e.Err)
	}
	return e
}

// config returns the configuration and the labels of the cluster in a file.
func (f *KubeconfigDir) config(r *fileStates, name string) (*rest.Config, map[string]string, error) {
	k, err := r.kubeconfig(f.join(name))
	if err != nil {
		return nil, nil, err
	}
	context, err := currentContext(k)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg, err := r.config(k, context)
	var labels map[string]string
	if err == nil {
		labels, err = kubeconfigLabels(k, context)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig context %q: %w", context, err)
	}
	return cfg, labels, nil
}

// fileCluster returns the name of the cluster of a file.
func fileCluster(name string) string {
	for _, ext := range []string{".yaml", ".yml", ".kubeconfig", ".conf"} {
		if short, ok := strings.CutSuffix(name, ext); ok {
			return short
		}
	}
	return name
}
