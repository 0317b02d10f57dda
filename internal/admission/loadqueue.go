// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package admission

import (
	"context"
	"slices"
	"sync"
)

// LoadQueue admits the mirrors that load their stored state, a few at a time: first those that
// a reader has asked for, then the others in the order of their arrival. The state of each
// is complete sooner than if all were loaded at once.
type LoadQueue struct {
	// mu guards the fields below. free is how many mirrors are admitted at once.
	mu      sync.Mutex
	free    int
	waiting []*load
}

// load is a mirror that waits.
type load struct {
	wanted   func() bool
	admitted chan struct{}
}

// NewLoadQueue returns a queue that admits a number of mirrors at once.
func NewLoadQueue(limit int) *LoadQueue { return &LoadQueue{free: limit} }

// Enter waits for a place. "wanted" reports whether a reader has asked for the mirror. The
// caller calls leave when the state is loaded.
func (l *LoadQueue) Enter(ctx context.Context, wanted func() bool) (leave func(), err error) {
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return l.leave, nil
	}
	own := &load{wanted, make(chan struct{})}
	l.waiting = append(l.waiting, own)
	l.mu.Unlock()
	select {
	case <-own.admitted:
		return l.leave, nil
	case <-ctx.Done():
		l.forget(own)
		return nil, context.Cause(ctx)
	}
}

// forget removes a mirror that no longer waits. If it was admitted meanwhile, its place is
// given to another.
func (l *LoadQueue) forget(own *load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(w *load) bool { return w == own })
	if len(l.waiting) == n {
		l.nextLocked()
	}
}

func (l *LoadQueue) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
}

// nextLocked gives a place to the next mirror.
func (l *LoadQueue) nextLocked() {
	if len(l.waiting) == 0 {
		l.waiting = nil // its array had a place for each mirror
		l.free++
		return
	}
	i := max(0, slices.IndexFunc(l.waiting, func(w *load) bool { return w.wanted() }))
	close(l.waiting[i].admitted)
	l.waiting = slices.Delete(l.waiting, i, i+1)
}
