// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"sync"
	"time"
)

const (
	// documentWait is how long a caller waits for a new copy if the old one is too old but
	// can still be used.
	documentWait = time.Second
	// documentPause is the pause after a failed read.
	documentPause = time.Second
)

// document is the last copy of something that another server publishes. It is read when it
// is first needed, and again while it is used: in the background when it is older than
// half of refresh. A copy that is older than refresh is used only if it cannot be read, up
// to the age of grace. Reads run in goroutines that close waits for, one at a time.
type document[T any] struct {
	// fetch reads the document. It returns the previous copy if that is still current, and
	// otherwise a new one or a status. The first previous copy is the zero value.
	fetch                   func(ctx context.Context, previous T) (T, error)
	refresh, grace, timeout time.Duration
	trouble                 string // the message of a 503 that fetch did not return

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	latest T
	at     time.Time // when the read of latest began; zero if there is none
	read   *read     // the one that runs, or nil
	failed time.Time // when the last read failed; zero if it did not
	err    error     // its status
}

// read is one read that callers wait for.
type read struct {
	done  chan struct{}
	begin time.Time
}

func newDocument[T any](
	refresh, grace, timeout time.Duration, trouble string, fetch func(context.Context, T) (T, error),
) *document[T] {
	d := &document[T]{fetch: fetch, refresh: refresh, grace: grace, timeout: timeout, trouble: trouble}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// close cancels the reads and waits for them.
func (d *document[T]) close() {
	d.mu.Lock()
	d.cancel()
	d.mu.Unlock()
	d.all.Wait()
}

// get returns the current copy or a status.
func (d *document[T]) get(ctx context.Context) (none T, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	age := now.Sub(d.at)
	if age < d.refresh/2 {
		return d.latest, nil
	}
	usable := age < d.grace
	r := d.startLocked(now)
	if r != nil && (!usable || age >= d.refresh && d.failed.IsZero()) {
		d.awaitLocked(ctx, r, usable)
	}
	if time.Since(d.at) >= d.grace {
		return none, d.statusLocked()
	}
	return d.latest, nil
}

// newer returns a copy that is younger than age, or a status if it cannot be read.
func (d *document[T]) newer(ctx context.Context, age time.Duration) (none T, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, before := time.Now(), d.at
	if now.Sub(before) < age {
		return d.latest, nil
	}
	if r := d.startLocked(now); r != nil {
		d.awaitLocked(ctx, r, false)
	}
	if d.at.Equal(before) {
		return none, d.statusLocked()
	}
	return d.latest, nil
}

// awaitLocked unlocks d while it waits for the read; if there is a usable copy, until the
// read has taken documentWait.
func (d *document[T]) awaitLocked(ctx context.Context, r *read, usable bool) {
	d.mu.Unlock()
	defer d.mu.Lock()
	var late <-chan time.Time
	if usable {
		timer := time.NewTimer(max(0, documentWait-time.Since(r.begin)))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-r.done:
	case <-late:
	case <-ctx.Done():
	}
}

// statusLocked returns the status of the last read, or a 503 if none has ended.
func (d *document[T]) statusLocked() error {
	if d.err != nil {
		return d.err
	}
	return unavailable(d.trouble)
}

// startLocked returns the read that runs, which it starts unless one runs. It returns nil
// if the last one has failed just now.
func (d *document[T]) startLocked(now time.Time) *read {
	if d.read != nil {
		return d.read
	}
	if d.ctx.Err() != nil || !d.failed.IsZero() && now.Sub(d.failed) < documentPause {
		return nil
	}
	d.read = &read{done: make(chan struct{}), begin: now}
	previous := d.latest
	d.all.Go(func() { d.run(previous) })
	return d.read
}

func (d *document[T]) run(previous T) {
	ctx, cancel := context.WithTimeout(d.ctx, d.timeout)
	defer cancel()
	latest, err := d.fetch(ctx, previous)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.latest, d.at, d.failed, d.err = latest, d.read.begin, time.Time{}, nil
	} else {
		d.failed, d.err = time.Now(), err
	}
	close(d.read.done)
	d.read = nil
}
