// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

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

// Storage are the flags for the files of mirrored objects.
type Storage struct {
	Dir       string
	KeyFile   string
	KeyEnv    string
	KMS       string
	retention time.Duration
	maxSize   int64
}

// restartWindow is how long changes are kept in any case, for watches that resume after a
// restart.
const restartWindow = 5 * time.Minute

func (o *Storage) declare(in config.Section) {
	in.String(&o.Dir, "storage.dir", "data-dir", "", "the `directory` in which mirrored objects are stored, so that "+
		"a restarted server can be read at once and need not list them; only one server at a time can use it "+
		"(default none)")
	in.String(&o.KeyFile, "storage.keyFile", "data-key-file", "", "a `file` with keys, 32 bytes in base64 in each "+
		"line, of which the first encrypts; without it, secrets are not stored")
	in.String(&o.KeyEnv, "storage.keyVariable", "data-key-env", "",
		"the `name` of an environment variable with keys, in the form of --data-key-file")
	in.String(&o.KMS, "storage.kms", "data-kms", "", "the `address` of a KMS v2 plugin that encrypts the keys of "+
		"secrets, such as unix:///run/kms.sock, instead of --data-key-file")
	in.Duration(&o.retention, "storage.retention", "data-retention", 24*time.Hour,
		"how long the files keep the past of the objects at least, unless --data-max-size is reached first; "+
			"0 keeps what a restart needs, at least five minutes").
		AtLeast(0, "use 0 to keep no more than a restart needs")
	in.Int64(&o.maxSize, "storage.maxSizeMiB", "data-max-size", 10<<10,
		"how many `MiB` the past of the objects may take; the oldest part is removed").
		AtLeast(1, "use --data-retention 0 to keep no more than a restart needs")
}

func (o *Storage) validate() error {
	set := ""
	for _, key := range []struct{ flag, value string }{{"data-key-file", o.KeyFile}, {"data-key-env", o.KeyEnv},
		{"data-kms", o.KMS}} {
		switch {
		case key.value == "":
		case o.Dir == "":
			return config.About(key.flag, "--%s has no effect without --data-dir", key.flag)
		case set != "":
			return config.About(key.flag, "use only one of --%s and --%s", set, key.flag)
		default:
			set = key.flag
		}
	}
	return nil
}

// Open opens the files, nil if nothing is stored.
func (o *Storage) Open(ctx context.Context, logger *slog.Logger) (*StoredFiles, error) {
	if o.Dir == "" {
		return nil, nil
	}
	keys, closeKeys, err := o.Keys(ctx)
	if err != nil {
		return nil, err
	}
	d, err := disk.Open(o.Dir, &disk.Options{Keys: keys, Window: max(o.retention, restartWindow),
		WindowBytes: o.maxSize << 20, Logger: logger})
	if errors.Is(err, disk.ErrInUse) {
		err = fmt.Errorf("%w %s: stop that server, or choose another directory", disk.ErrInUse, o.Dir)
	}
	if err != nil {
		closeKeys()
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	logger.Info("objects are stored in files", "dir", o.Dir, "past", max(o.retention, restartWindow), "limit",
		fmt.Sprintf("%d MiB", o.maxSize))
	return &StoredFiles{d, closeKeys}, nil
}

// StoredFiles are the files with their keys.
type StoredFiles struct {
	*disk.Directory
	closeKeys func()
}

// Files returns the files, nil if there are none.
func (f *StoredFiles) Files() *disk.Directory {
	if f == nil {
		return nil
	}
	return f.Directory
}

// Close closes the files, and then the keys.
func (f *StoredFiles) Close() error {
	defer f.closeKeys()
	return f.Directory.Close()
}

// Keys returns the keys, nil if there are none, and a function that closes them.
func (o *Storage) Keys(ctx context.Context) (keys disk.Keys, end func(), err error) {
	end = func() {}
	switch {
	case o.KeyFile != "":
		if keys, err = disk.KeysFromFile(o.KeyFile); err != nil {
			err = fmt.Errorf("--data-key-file: %w", err)
		}
	case o.KeyEnv != "":
		if keys, err = disk.KeysFromEnv(o.KeyEnv); err != nil {
			err = fmt.Errorf("--data-key-env: %w", err)
		}
	case o.KMS != "":
		plugin, err := kms.Open(o.KMS)
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
