// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// maxFile is the most bytes that a file may have.
const maxFile = 1 << 20

// settle is how long a changed file must stay the same before it is used: a program may be
// writing it.
const settle = 200 * time.Millisecond

// errLarge is returned for a file that is larger than maxFile.
var errLarge = errors.New("the file is larger than 1 MiB")

// ReadFile returns the content of a file, which is not nil for an empty file.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = errLarge
	}
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return content, nil
}

// Follow calls changed when the content of a file differs from the last content, until ctx
// ends, and failed when the file cannot be read or changed returns an error, once for each
// different error. It reads the file after each period. After an error it calls changed with
// the same content again: a file that the content names may be right by then. After a value
// from now it reads the file at once, and calls changed even if the content is the same.
func Follow(
	ctx context.Context, path string, last []byte, period time.Duration, now <-chan os.Signal,
	changed func(content []byte) error, failed func(error),
) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	failure := ""
	for {
		forced := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-now:
			forced = true
		}
		content, err := readSettled(ctx, path, last)
		if ctx.Err() != nil {
			return
		}
		if err == nil && (forced || failure != "" || !bytes.Equal(content, last)) {
			last = content
			err = changed(content)
		}
		switch {
		case err == nil:
			failure = ""
		case forced || err.Error() != failure:
			failure = err.Error()
			failed(err)
		}
	}
}

// readSettled returns the content of a file. A content that differs from the last one must be
// the same twice.
func readSettled(ctx context.Context, path string, last []byte) ([]byte, error) {
	content, err := ReadFile(path)
	for err == nil && !bytes.Equal(content, last) {
		if err := timer.Sleep(ctx, settle); err != nil {
			return nil, err
		}
		var again []byte
		if again, err = ReadFile(path); err == nil && bytes.Equal(content, again) {
			return content, nil
		}
		content = again
	}
	return content, err
}
