// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"sync"
)

// endings ends the contexts of watches when channels are closed. The watches that wait for
// one channel share a goroutine, which ends with the last of them. The zero value is ready
// to use. It costs some 300 bytes for each watch, and a goroutine for each channel.
type endings struct {
	mu    sync.Mutex
	waits map[<-chan struct{}]*ending
}

// ending is the watches that wait for one channel.
type ending struct {
	// cancels has a function for each watch, and is nil once the channel was closed. The
	// mu of endings guards it.
	cancels map[*context.CancelFunc]struct{}
	// stop is closed when the last watch has ended, and done when the goroutine has.
	stop, done chan struct{}
}

// until returns a context that ends when one of the channels is closed. The caller calls
// release when it does not need the context any more.
func (e *endings) until(ctx context.Context, channels []<-chan struct{}) (_ context.Context, release func()) {
	if len(channels) == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	joined := make([]*ending, len(channels))
	for i, c := range channels {
		joined[i] = e.join(c, &cancel)
	}
	return ctx, func() {
		cancel()
		for i, c := range channels {
			e.leave(c, joined[i], &cancel)
		}
	}
}

// join adds a watch to those that wait for a channel.
func (e *endings) join(c <-chan struct{}, cancel *context.CancelFunc) *ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waits[c]
	if w == nil {
		if e.waits == nil {
			e.waits = map[<-chan struct{}]*ending{}
		}
		w = &ending{cancels: map[*context.CancelFunc]struct{}{}, stop: make(chan struct{}), done: make(chan struct{})}
		e.waits[c] = w
		go e.wait(c, w)
	}
	w.cancels[cancel] = struct{}{}
	return w
}

// leave removes a watch. The last one waits for the goroutine.
func (e *endings) leave(c <-chan struct{}, w *ending, cancel *context.CancelFunc) {
	e.mu.Lock()
	delete(w.cancels, cancel)
	last := len(w.cancels) == 0
	if last && e.waits[c] == w {
		delete(e.waits, c)
		close(w.stop)
	}
	e.mu.Unlock()
	if last {
		<-w.done
	}
}

// wait cancels the watches when the channel is closed.
func (e *endings) wait(c <-chan struct{}, w *ending) {
	defer close(w.done)
	select {
	case <-w.stop:
		return
	case <-c:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits[c] == w {
		delete(e.waits, c)
	}
	for cancel := range w.cancels {
		(*cancel)()
	}
	w.cancels = nil
}
