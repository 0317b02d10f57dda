// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
)

// handler receives changes.
type handler[T any] struct {
	OnAdd    func(obj T, initial bool)
	OnUpdate func(old, now T)
	OnDelete func(last T)
}

// watchdog is an informer with one handler, for anything that has a key and can be
// listed and watched.
type watchdog[T any] struct {
	reflector *reflector.Reflector[T]
	fifo      *delta.FIFO[T]
	store     *store.Store[T]
	handler   handler[T]
}

// newWatchdog returns a watchdog. A list has all objects again, and same reports which of
// them have not changed: the handler does not receive those.
func newWatchdog[T any](
	source reflector.Source[T], key func(T) string, same func(old, now T) bool, h handler[T],
) *watchdog[T] {
	known := store.New(key, &store.Options[T]{Same: same})
	fifo := delta.New(key, &delta.Options[T]{Known: known})
	return &watchdog[T]{reflector: reflector.New(source, fifo, nil), fifo: fifo, store: known, handler: h}
}

// run blocks until ctx ends, and returns after everything that it started.
func (w *watchdog[T]) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		// Failed requests are retried. Run returns an error only if it runs already.
		_ = w.reflector.Run(ctx)
	})
	for {
		if err := w.fifo.Pop(ctx, w.process); err != nil {
			return fmt.Errorf("watchdog: %w", err)
		}
	}
}

// process is the body of the controller loop. The store determines whether an object is
// new, because a delta of a list does not have that information.
func (w *watchdog[T]) process(deltas delta.Deltas[T], initial bool) error {
	for _, c := range w.store.Apply(deltas) {
		switch c.Type {
		case delta.Added:
			w.handler.OnAdd(c.New, initial)
		case delta.Updated:
			w.handler.OnUpdate(c.Old, c.New)
		case delta.Deleted:
			w.handler.OnDelete(c.New)
		}
	}
	return nil
}
