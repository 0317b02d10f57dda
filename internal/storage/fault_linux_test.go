// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestFault_fullDisk fills a real file system. It needs the right to mount one.
func TestFault_fullDisk(t *testing.T) {
	path := t.TempDir()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mount a tmpfs of 256 KiB: %v: it needs root and CAP_SYS_ADMIN", err)
	}
	defer syscall.Unmount(path, 0)
	d := openDirectory(t, path, nil)
	stop := run(t, d)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.keys = 40
	w.fill(40)
	waitStored(t, w)
	ballast := path + "/ballast"
	f, err := os.Create(ballast)
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	expect.Soon(t, "an error", func() bool {
		w.change(3)
		return errors.Is(d.Stats().LastError, syscall.ENOSPC)
	})
	checkCopy(t, path, w)
	must(t, os.Remove(ballast))
	w.change(1)
	waitStored(t, w)
	stop()
	must(t, d.Close())
	s, err := load(t, path, identify("configmaps"), nil, MirrorOptions{})
	must(t, err)
	must(t, w.truth.check(s))
	if s.Version != w.version {
		t.Errorf("version %d instead of %d", s.Version, w.version)
	}
}
