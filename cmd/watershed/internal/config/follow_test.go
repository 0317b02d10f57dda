// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/internal/expect"
)

// following is a Follow of a file and what it has reported.
type following struct {
	path string
	now  chan os.Signal

	mu       sync.Mutex
	contents []string
	failures []string
	// refused is the error for each content, "" if they are accepted.
	refused string
}

// follow follows a file for the duration of the test.
func follow(t *testing.T, path, last string, period time.Duration) *following {
	t.Helper()
	f := &following{path: path, now: make(chan os.Signal, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		config.Follow(ctx, path, []byte(last), period, f.now, func(content []byte) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.refused != "" {
				return errors.New(f.refused)
			}
			f.contents = append(f.contents, string(content))
			return nil
		}, func(err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.failures = append(f.failures, err.Error())
		})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return f
}

// reported returns the contents and errors so far.
func (f *following) reported() (contents, failures string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.contents, "|"), strings.Join(f.failures, "|")
}

// expect waits until these contents were reported.
func (f *following) expect(t *testing.T, want string) {
	t.Helper()
	expect.Soon(t, "contents "+want, func() bool { got, _ := f.reported(); return got == want })
}

func write(t *testing.T, path, content string) {
	t.Helper()
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// TestFollow_configMap follows a file of a mounted ConfigMap: a link to a link that the kubelet
// replaces.
func TestFollow_configMap(t *testing.T) {
	dir := t.TempDir()
	mount := func(version, content string) {
		expect.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "watershed.yaml"), content)
		expect.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		expect.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	mount("..1", "one")
	path := filepath.Join(dir, "watershed.yaml")
	expect.NoError(t, os.Symlink(filepath.Join("..data", "watershed.yaml"), path))
	f := follow(t, path, "one", 10*time.Millisecond)
	mount("..2", "two")
	f.expect(t, "two")
	mount("..3", "two") // another file with the same content
	mount("..4", "four")
	f.expect(t, "two|four")
}

// TestFollow_reportsEachErrorOnce removes the file for a while.
func TestFollow_reportsEachErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		write(t, path, "one")
		f := follow(t, path, "one", 5*time.Millisecond)
		expect.NoError(t, os.Remove(path))
		expect.Soon(t, "an error", func() bool { _, failures := f.reported(); return failures != "" })
		time.Sleep(100 * time.Millisecond) // twenty more periods
		if _, failures := f.reported(); strings.Count(failures, "no such file") != 1 {
			t.Errorf("the errors are %s, want one", failures)
		}
		write(t, path, "one")
		f.expect(t, "one") // reported again, so that the error is known to be over
		write(t, path, strings.Repeat("x", 1<<20+1))
		expect.Soon(t, "an error", func() bool {
			_, failures := f.reported()
			return strings.Contains(failures, "larger than 1 MiB")
		})
	})
}

// TestFollow_triesAgain refuses a content for a while: it takes effect without another change.
func TestFollow_triesAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	write(t, path, "one")
	f := follow(t, path, "one", 5*time.Millisecond)
	refuse := func(text string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refused = text
	}
	refuse("no such folder")
	write(t, path, "two")
	expect.Soon(t, "the first error", func() bool { _, failures := f.reported(); return failures == "no such folder" })
	refuse("not a folder")
	expect.Soon(t, "the second error", func() bool {
		_, failures := f.reported()
		return failures == "no such folder|not a folder"
	})
	refuse("")
	f.expect(t, "two")
}

// TestFollow_waitsForTheWriter writes a file in small parts, with less time between them than
// the file has to stay the same.
func TestFollow_waitsForTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		write(t, path, "")
		f := follow(t, path, "", time.Millisecond)
		for i := range 10 {
			write(t, path, strings.Repeat("x", i+1))
			time.Sleep(50 * time.Millisecond)
		}
		f.expect(t, "xxxxxxxxxx")
	})
}

// TestFollow_signal checks that a signal has an effect at once.
func TestFollow_signal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	write(t, path, "one")
	f := follow(t, path, "one", time.Hour)
	write(t, path, "two")
	f.now <- syscall.SIGHUP
	f.expect(t, "two")
	f.now <- syscall.SIGHUP // the content is the same
	f.expect(t, "two|two")
}
