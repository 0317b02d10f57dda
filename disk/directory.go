// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/watershed-project/watershed/internal/storage"
)

// ErrInUse is returned by [Open] for a directory that another process has open.
var ErrInUse = storage.ErrInUse

// ErrUnidentified means that it is not known which cluster a server has. Its objects are not
// stored: after a restart they could be taken for those of another cluster at the same
// address.
var ErrUnidentified = storage.ErrUnidentified

// Options configures a [Directory]. The zero value, and nil, are the defaults.
type Options struct {
	// Buffer limits the memory of the batches that wait to be written, in bytes. Default
	// 64 MiB.
	Buffer int64
	// Window is how far back the past can be read, for watches that resume and for the history
	// of a fleet. Default 5 minutes.
	Window time.Duration
	// WindowBytes limits the size of the logs of all open clusters, together with the
	// snapshots that have a newer one, and of all files of clusters that have left. If they
	// are larger, the oldest files are removed first. Files that are needed to restore the
	// objects of an open cluster stay in any case. Default 10 GiB.
	WindowBytes int64
	// Keys encrypts Secrets. Default: Secrets are not stored.
	Keys Keys
	// Logger receives a message when writing begins to fail, and when it works again.
	// Default: none.
	Logger *slog.Logger
}

// Directory has the files of all clusters of a program. All methods are safe for concurrent use.
type Directory struct{ storage *storage.Directory }

// Open opens a directory, which is created if it does not exist. A nil opts means the
// defaults. Only one process at a time can have it open. Nothing is written before
// [Directory.Run].
func Open(path string, opts *Options) (*Directory, error) {
	opts = cmp.Or(opts, &Options{})
	d, err := storage.Open(path, storage.Options{
		Buffer: opts.Buffer, Window: opts.Window, WindowBytes: opts.WindowBytes, Keys: opts.Keys, Logger: opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Directory{d}, nil
}

// Run writes what informers and fleets store until ctx ends. Then it writes and syncs all that
// waits, and returns nil. It can be called once.
func (d *Directory) Run(ctx context.Context) error { return d.storage.Run(ctx) }

// Close releases the directory. Run must have returned.
func (d *Directory) Close() error { return d.storage.Close() }

// Stats are the counters of a directory since it was opened. A batch is a number of changes that
// the copy of a resource has applied at once.
type Stats struct {
	// Batches, Changes and Snapshots count what was written, Bytes and Syncs how.
	Batches, Changes, Snapshots, Bytes, Syncs int64
	// Queued is the size of the batches that wait, in bytes.
	Queued int64
	// Dropped counts how often the batches of a resource were dropped. Behind is the number of
	// resources that need a complete state now.
	Dropped uint64
	Behind  int
	// Errors counts failed operations. LastError is the last one, and LastErrorAt when it
	// happened.
	Errors      uint64
	LastError   error
	LastErrorAt time.Time
}

// Stats returns the counters.
func (d *Directory) Stats() Stats { return Stats(d.storage.Stats()) }

// Storage returns the files for the other packages of this module, nil for nil. Other modules
// cannot use the result: its type is internal and can change at any time.
func (d *Directory) Storage() *storage.Directory {
	if d == nil {
		return nil
	}
	return d.storage
}
