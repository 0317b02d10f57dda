// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/storage/reader"
)

// run runs a directory until the test, or stop, ends it.
func run(tb testing.TB, d *Directory) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	tb.Cleanup(stop)
	return stop
}

// TestFault_anyOperation fails each kind of operation for a while. Append does not notice,
// what the files have is true at any time, and the mirror is stored again afterwards.
func TestFault_anyOperation(t *testing.T) {
	for _, operation := range []string{"create", "write", "sync", "rename"} {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
			t.Run(operation+" "+cause.Error(), func(t *testing.T) {
				path := t.TempDir()
				var log strings.Builder // the directory does not log concurrently
				d := openDirectory(t, path, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				var failing atomic.Bool
				d.files.Fault = func(op, _ string, size int) (int, error) {
					if op == operation && failing.Load() {
						return size / 2, cause
					}
					return size, nil
				}
				stop := run(t, d)
				w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
				w.keys = 40
				w.fill(40)
				waitStored(t, w)
				failing.Store(true)
				for n := 0; n < 50 || d.Stats().Errors == 0; n++ {
					w.random()
					time.Sleep(time.Millisecond) // the writer tries some of the changes each by itself
				}
				if st := d.Stats(); !errors.Is(st.LastError, cause) || st.Errors == 0 || st.LastErrorAt.IsZero() {
					t.Errorf("stats %+v", st)
				}
				checkCopy(t, path, w)
				failing.Store(false)
				w.change(1)
				waitStored(t, w)
				if st := w.mirror.Status(); st.Err != nil {
					t.Errorf("status %+v", st)
				}
				w.change(1)
				expect.Soon(t, "the directory recovers", func() bool { return !d.isFailing() })
				stop()
				must(t, d.Close())
				// It may seem to work for some time, if only snapshots fail.
				if text := log.String(); !strings.Contains(text, cause.Error()) ||
					strings.Count(text, "cannot be written") != strings.Count(text, "written again") ||
					strings.Count(text, "cannot") > 3 {
					t.Errorf("the log is\n%s", text)
				}
				s, err := load(t, path, identify("configmaps"), nil, MirrorOptions{})
				must(t, err)
				must(t, w.truth.check(s))
				if s.Version != w.version {
					t.Errorf("version %d instead of %d", s.Version, w.version)
				}
			})
		}
	}
}

func (d *Directory) isFailing() bool {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	return d.ledger.failing
}

// waitStored waits until everything that was appended is written.
func waitStored(t *testing.T, w *world) {
	t.Helper()
	expect.Eventually(t, time.Minute, func() error {
		st := w.mirror.Status()
		if st.Behind || st.Version != w.version {
			return fmt.Errorf("status %+v at version %d, stats %+v", st, w.version, w.mirror.cluster.directory.Stats())
		}
		return nil
	})
}

// checkCopy loads a copy of the files that a running directory has.
func checkCopy(t *testing.T, path string, w *world) {
	t.Helper()
	copied := t.TempDir()
	for name, content := range allFilesLenient(path) {
		to := copied + strings.TrimPrefix(name, path)
		must(t, os.MkdirAll(to[:strings.LastIndex(to, "/")], 0o700))
		must(t, os.WriteFile(to, content, 0o600))
	}
	s, err := load(t, copied, w.mirror.id, nil, MirrorOptions{})
	if err != nil {
		t.Logf("the copy is rejected: %v", err)
		return
	}
	must(t, w.truth.check(s))
}

// TestFault_slowSync makes every sync take long. Append must not wait for it.
func TestFault_slowSync(t *testing.T) {
	d := openDirectory(t, t.TempDir(), nil)
	const slow = 300 * time.Millisecond
	var syncs atomic.Int64
	var over atomic.Bool
	d.files.Fault = func(op, _ string, size int) (int, error) {
		if op == "sync" && !over.Load() {
			syncs.Add(1)
			time.Sleep(slow) // a slow disk
		}
		return size, nil
	}
	stop := run(t, d)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.fill(40)
	longest, began := time.Duration(0), time.Now()
	for time.Since(began) < 3*slow {
		changes, state := w.store.Apply(w.deltas(3, delta.Updated)), w.store.Snapshot()
		w.remember()
		at := time.Now()
		w.mirror.Append(Batch{State: state, Changes: changes})
		longest = max(longest, time.Since(at))
		time.Sleep(time.Millisecond) // the pace of the changes
	}
	if syncs.Load() == 0 || longest > slow/3 {
		t.Errorf("Append took %v, during %d syncs of %v", longest, syncs.Load(), slow)
	}
	t.Logf("longest Append %v during %d syncs of %v", longest, syncs.Load(), slow)
	over.Store(true)
	stop()
}

// TestFault_buffer blocks all writes. The queue stays within its bound, and the mirrors
// with most batches are dropped first.
func TestFault_buffer(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, &Options{Buffer: 64 << 10})
	blocked := make(chan struct{})
	var block atomic.Bool
	d.files.Fault = func(op, _ string, size int) (int, error) {
		if op == "write" && block.Load() {
			<-blocked
		}
		return size, nil
	}
	stop := run(t, d)
	busy := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 1)
	quiet := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 2)
	for _, w := range []*world{busy, quiet} {
		w.fill(5)
		waitStored(t, w)
	}
	block.Store(true)
	for range 500 {
		busy.change(4)
		if st := d.Stats(); st.Queued > 64<<10 {
			t.Fatalf("%d bytes are queued", st.Queued)
		}
	}
	quiet.change(1)
	if busy.mirror.Status().Dropped == 0 || quiet.mirror.Status().Dropped != 0 {
		t.Errorf("busy %+v, quiet %+v", busy.mirror.Status(), quiet.mirror.Status())
	}
	checkCopy(t, path, busy)
	block.Store(false)
	close(blocked)
	for _, w := range []*world{busy, quiet} {
		w.change(1)
		waitStored(t, w)
	}
	stop()
	must(t, d.Close())
	for _, w := range []*world{busy, quiet} {
		s, err := load(t, path, w.mirror.id, nil, MirrorOptions{})
		must(t, err)
		must(t, w.truth.check(s))
		if s.Version != w.version {
			t.Errorf("%v: version %d instead of %d", w.mirror.id, s.Version, w.version)
		}
	}
}

// TestFault_read fails reads: the mirror is rejected, and stored again.
func TestFault_read(t *testing.T) {
	path := t.TempDir()
	w := storeWorld(t, path, "configmaps", 1, 40)
	d := openDirectory(t, path, nil)
	d.files.Fault = func(op, path string, size int) (int, error) {
		if op == "read" {
			return 0, &os.PathError{Op: op, Path: path, Err: syscall.EIO}
		}
		return size, nil
	}
	w.mirror = openMirror(t, d, identify("configmaps"), MirrorOptions{})
	_, err := w.mirror.Load(0)
	if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Unreadable && r.Reason != reader.Damaged {
		t.Fatalf("%v", err)
	}
	w.change(3)
	step(d)
	w.change(3)
	step(d)
	d.files.Fault = nil
	finish(t, d)
	s, err := load(t, path, identify("configmaps"), nil, MirrorOptions{})
	must(t, err)
	must(t, w.truth.check(s))
	if s.Version != w.version {
		t.Errorf("version %d instead of %d", s.Version, w.version)
	}
}
