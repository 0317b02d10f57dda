// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
)

// StartErrors returns the errors with which serve would end at its start: addresses,
// certificates, keys, and files that cannot be written. The caller checks the sources of clusters.
// StartErrors leaves nothing behind. It does not check addresses while a server runs with the
// state directory, because that server listens on them.
func (o *Settings) StartErrors(ctx context.Context) error {
	discard := slog.New(slog.DiscardHandler)
	if err := o.State.Find(); err != nil {
		return err
	}
	var errs []error
	if o.Listening.CertFile != "" {
		if _, err := o.Listening.openFiles(discard); err != nil {
			errs = append(errs, err)
		}
	}
	if path := o.Audit.path; path != "" && path != "-" {
		if err := appendable(path); err != nil {
			errs = append(errs, fmt.Errorf("--audit-log: %w", err))
		}
	}
	if o.Storage.Dir != "" {
		if _, closeKeys, err := o.Storage.Keys(ctx); err != nil {
			errs = append(errs, err)
		} else {
			closeKeys()
		}
		if err := creatable(o.Storage.Dir); err != nil {
			errs = append(errs, fmt.Errorf("--data-dir: %w", err))
		}
	}
	if err := creatable(o.State.Path); err != nil {
		errs = append(errs, fmt.Errorf("--state-dir: %w", err))
	}
	if !o.State.Locked() {
		errs = append(errs, o.addressErrors(ctx)...)
	}
	return errors.Join(errs...)
}

// addressErrors returns the errors of addresses that serve cannot listen on. All of them are open
// until the end, because they must differ.
func (o *Settings) addressErrors(ctx context.Context) (errs []error) {
	if l, err := o.ListenReplica(ctx); err != nil {
		errs = append(errs, fmt.Errorf("--listen %s: %w", o.Listen, err))
	} else {
		defer l.Close()
	}
	peers := func(ctx context.Context) (net.Listener, error) {
		l, _, err := o.ListenPeers(ctx)
		return l, err
	}
	for _, listen := range []func(context.Context) (net.Listener, error){o.ListenProfiles, o.ListenMetrics, peers} {
		l, err := listen(ctx)
		if err != nil {
			return append(errs, err)
		}
		if l != nil {
			defer l.Close()
		}
	}
	return errs
}

// appendable returns an error if a file cannot be appended to, or created.
func appendable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return tryFile(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if is, err := f.Stat(); err != nil || !is.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return nil
}

// creatable returns an error if files cannot be created in a folder, or in the folder in which it
// would be created.
func creatable(dir string) error {
	for {
		is, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir:
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			return err
		case !is.IsDir():
			return fmt.Errorf("%s is not a directory", dir)
		}
		return tryFile(dir)
	}
}

// tryFile creates a file in a folder, and removes it.
func tryFile(dir string) error {
	f, err := os.CreateTemp(dir, ".watershed-check-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
