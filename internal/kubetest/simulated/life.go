// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import "sync"

// life is the time during which a server runs. It counts the goroutines that accept, serve
// connections and respond.
type life struct {
	owned sync.WaitGroup

	mu     sync.Mutex // guards closed, and owned against its end
	closed bool
}

// enter adds a goroutine that wait waits for. It returns false after end was called.
func (l *life) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.owned.Add(1)
	}
	return !l.closed
}

// leave is called at the end of a goroutine for which enter returned true.
func (l *life) leave() { l.owned.Done() }

// run runs f in a goroutine that wait waits for.
func (l *life) run(f func()) { l.owned.Go(f) }

// end makes enter return false from now on.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// wait waits for the goroutines.
func (l *life) wait() { l.owned.Wait() }
