// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"sync"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

// informer is a shared informer by hand, for anything that has a key. Events pass through
// its stages from left to right: source, queue, store, log, handlers.
type informer[T any] struct {
	fifo     *delta.FIFO[T]
	store    *store.Store[T]
	log      *fanout.Log[T]
	handlers []handler[T]
}

// handler is called with each change that its interest selects.
type handler[T any] struct {
	interest fanout.Interest
	call     func(store.Change[T])
}

// newInformer returns an informer whose queue uses the store as its known objects.
func newInformer[T any](key func(T) string, opts *store.Options[T]) *informer[T] {
	known := store.New(key, opts)
	return &informer[T]{
		fifo:  delta.New(key, &delta.Options[T]{Known: known}),
		store: known,
		log:   fanout.New[T](nil),
	}
}

func (i *informer[T]) handle(interest fanout.Interest, call func(store.Change[T])) {
	i.handlers = append(i.handlers, handler[T]{interest, call})
}

// run calls source to fill the queue. When source returns, the end passes through the
// stages like an event: each stage processes what is left and closes the next one. run
// returns when all of them have ended.
func (i *informer[T]) run(ctx context.Context, source func(context.Context, *delta.FIFO[T]) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var sourceErr, storeErr error
	wg.Go(func() {
		defer i.fifo.Close()
		sourceErr = source(ctx, i.fifo)
	})
	wg.Go(func() {
		defer i.log.Close()
		storeErr = i.process(context.WithoutCancel(ctx))
	})
	handlerErrs := make([]error, len(i.handlers))
	for n, h := range i.handlers {
		wg.Go(func() {
			if handlerErrs[n] = i.follow(context.WithoutCancel(ctx), h); handlerErrs[n] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(sourceErr, storeErr, errors.Join(handlerErrs...))
}

// process is the controller loop: all queued deltas become one batch, one snapshot and
// one entry in the log. The store updates its indexes.
func (i *informer[T]) process(ctx context.Context) error {
	for {
		err := i.fifo.Drain(ctx, func(deltas delta.Deltas[T], _ bool) error {
			i.log.Publish(i.store.Apply(deltas))
			return nil
		})
		if err != nil {
			return unless(delta.ErrClosed, err)
		}
	}
}

// follow calls a handler with all changes, at the handler's own pace. A handler that is
// more than 10,000 changes behind gets fanout.ErrExpired: the step listener shows how it
// could continue.
func (i *informer[T]) follow(ctx context.Context, h handler[T]) error {
	cursor, err := i.log.Cursor(0, h.interest)
	if err != nil {
		return err
	}
	for {
		changes, err := cursor.Next(ctx)
		if err != nil {
			return unless(fanout.ErrClosed, err)
		}
		for _, c := range changes {
			h.call(c)
		}
	}
}

// unless returns nil for the error that a stage is expected to end with.
func unless(end, err error) error {
	if errors.Is(err, end) {
		return nil
	}
	return err
}
