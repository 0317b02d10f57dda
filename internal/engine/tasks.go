// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"sync"
)

// tasks are the goroutines that a life waits for at its end.
type tasks struct {
	running sync.WaitGroup

	// mu guards the fields below.
	mu sync.Mutex
	// ctx is set when the life begins, over when it ends.
	ctx  context.Context
	over bool
	// waiting has the functions to start when the life begins, by their owner.
	waiting map[any]func(context.Context)
}

// Spawn runs a function in its own goroutine, now or when the life begins, until its
// context ends. After the end of the life, Spawn does not run it and returns false. An owner
// that must not wait for the life to begin any more calls Unspawn.
func (t *tasks) Spawn(owner any, run func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.over:
		return false
	case t.ctx == nil:
		if t.waiting == nil {
			t.waiting = map[any]func(context.Context){}
		}
		t.waiting[owner] = run
	default:
		ctx := t.ctx
		t.running.Go(func() { run(ctx) })
	}
	return true
}

// Unspawn drops the function of an owner if the life has not begun.
func (t *tasks) Unspawn(owner any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, owner)
}

// begin starts the waiting functions.
func (t *tasks) begin(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx = ctx
	for _, run := range t.waiting {
		t.running.Go(func() { run(ctx) })
	}
	t.waiting = nil
}

// refuse makes Spawn return false from now on.
func (t *tasks) refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}
