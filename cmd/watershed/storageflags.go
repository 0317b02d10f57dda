// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/kms"
	"github.com/watershed-project/watershed/disk"
)

// storageOptions are the flags for the files of mirrored objects.
type storageOptions struct {
	dir       string
	keyFile   string
	keyEnv    string
	kms       string
	retention time.Duration
	maxSize   int64
}

// restartWindow is how long changes are kept in any case, for watches that resume after a
// restart.
const restartWindow = 5 * time.Minute

func (o *storageOptions) declare(keys *config.Set) {
	keys.String(&o.dir, "storage.dir", "data-dir", "", "the `folder` in which mirrored objects are stored, so that a restarted server can be read at once and need not list them; no other process may use it (default none)")
	keys.String(&o.keyFile, "storage.keyFile", "data-key-file", "", "a `file` with keys, 32 bytes in base64 in each line, of which the first encrypts; without it, secrets are not stored")
	keys.String(&o.keyEnv, "storage.keyVariable", "data-key-env", "", "the `name` of an environment variable with keys, in the form of --data-key-file")
	keys.String(&o.kms, "storage.kms", "data-kms", "", "the `address` of a KMS v2 plugin that encrypts the keys of secrets, such as unix:///run/kms.sock, instead of --data-key-file")
	keys.Duration(&o.retention, "storage.retention", "data-retention", 24*time.Hour, "how long the files keep the past of the objects; 0 keeps only what a restart needs, which is five minutes").
		AtLeast(0, "use 0 to keep no more than a restart needs")
	keys.Int64(&o.maxSize, "storage.maxSizeMiB", "data-max-size", 10<<10, "how many `MiB` the past of the objects may take; the oldest part is removed").
		AtLeast(1, "use --data-retention 0 to keep no more than a restart needs")
}

func (o *storageOptions) validate() error {
	set := ""
	for _, key := range []struct{ flag, value string }{{"data-key-file", o.keyFile}, {"data-key-env", o.keyEnv}, {"data-kms", o.kms}} {
		switch {
		case key.value == "":
		case o.dir == "":
			return config.About(key.flag, "--%s has no effect without --data-dir", key.flag)
		case set != "":
			return config.About(key.flag, "use only one of --%s and --%s", set, key.flag)
		default:
			set = key.flag
		}
	}
	return nil
}

// open opens the files, nil if nothing is stored.
func (o *storageOptions) open(ctx context.Context, logger *slog.Logger) (*storedFiles, error) {
	if o.dir == "" {
		return nil, nil
	}
	keys, closeKeys, err := o.keys(ctx)
	if err != nil {
		return nil, err
	}
	d, err := disk.Open(o.dir, &disk.Options{Keys: keys, Window: max(o.retention, restartWindow), WindowBytes: o.maxSize << 20, Logger: logger})
	if errors.Is(err, disk.ErrInUse) {
		err = fmt.Errorf("%w %s: stop that server, or choose another directory", disk.ErrInUse, o.dir)
	}
	if err != nil {
		closeKeys()
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	logger.Info("objects are stored in files", "dir", o.dir, "past", max(o.retention, restartWindow), "limit", fmt.Sprintf("%d MiB", o.maxSize))
	return &storedFiles{d, closeKeys}, nil
}

// storedFiles are the files with their keys.
type storedFiles struct {
	*disk.Directory
	closeKeys func()
}

// directory returns the files, nil if there are none.
func (f *storedFiles) directory() *disk.Directory {
	if f == nil {
		return nil
	}
	return f.Directory
}

// Close closes the files, and then the keys.
func (f *storedFiles) Close() error {
	defer f.closeKeys()
	return f.Directory.Close()
}

// keys returns the keys, nil if there are none, and a function that closes them.
func (o *storageOptions) keys(ctx context.Context) (keys disk.Keys, end func(), err error) {
	end = func() {}
	switch {
	case o.keyFile != "":
		if keys, err = disk.KeysFromFile(o.keyFile); err != nil {
			err = fmt.Errorf("--data-key-file: %w", err)
		}
	case o.keyEnv != "":
		if keys, err = disk.KeysFromEnv(o.keyEnv); err != nil {
			err = fmt.Errorf("--data-key-env: %w", err)
		}
	case o.kms != "":
		plugin, err := kms.Open(o.kms)
		if err != nil {
			return nil, end, fmt.Errorf("--data-kms: %w", err)
		}
		if err := plugin.Check(ctx); err != nil {
			_ = plugin.Close()
			return nil, end, fmt.Errorf("--data-kms: %w", err)
		}
		return plugin, func() { _ = plugin.Close() }, nil
	}
	return keys, end, err
}
