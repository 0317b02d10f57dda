// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
)

// startErrors returns the errors with which serve would end at its start: addresses,
// certificates, keys, and files that cannot be written. The caller checks the sources of clusters.
// startErrors leaves nothing behind. It does not check addresses while a server runs with the
// state folder, because that server listens on them.
func (o *serveOptions) startErrors(ctx context.Context) error {
	discard := slog.New(slog.DiscardHandler)
	if err := o.state.find(); err != nil {
		return err
	}
	var errs []error
	if o.listening.certFile != "" {
		if _, err := o.listening.openFiles(discard); err != nil {
			errs = append(errs, err)
		}
	}
	if path := o.audit.path; path != "" && path != "-" {
		if err := appendable(path); err != nil {
			errs = append(errs, fmt.Errorf("--audit-log: %w", err))
		}
	}
	if o.storage.dir != "" {
		if _, closeKeys, err := o.storage.keys(ctx); err != nil {
			errs = append(errs, err)
		} else {
			closeKeys()
		}
		if err := creatable(o.storage.dir); err != nil {
			errs = append(errs, fmt.Errorf("--data-dir: %w", err))
		}
	}
	if err := creatable(o.state.dir); err != nil {
		errs = append(errs, fmt.Errorf("--state-dir: %w", err))
	}
	if !o.state.locked() {
		errs = append(errs, o.addressErrors(ctx, discard)...)
	}
	return errors.Join(errs...)
}

// addressErrors returns the errors of addresses that serve cannot listen on.
func (o *serveOptions) addressErrors(ctx context.Context, logger *slog.Logger) (errs []error) {
	if l, err := o.open(ctx); err != nil {
		errs = append(errs, fmt.Errorf("--listen %s: %w", o.listen, err))
	} else {
		defer l.Close() // the other addresses must differ from this one
	}
	inside, err := o.openInside(ctx, http.NotFoundHandler(), logger)
	if err != nil {
		return append(errs, err)
	}
	inside.close()
	return errs
}

// locked reports whether a server runs with the state folder.
func (s *state) locked() bool {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	free, err := lockFile(f)
	return err == nil && !free
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
			return fmt.Errorf("%s is not a folder", dir)
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
