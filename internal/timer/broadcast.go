// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package timer

import "sync"

// Broadcast wakes all who wait for the next change of something. The zero value is ready. All
// methods are safe for concurrent use.
type Broadcast struct {
	mu sync.Mutex
	// next is closed by the next Send, nil if nothing waits for it.
	next chan struct{}
}

// Wait returns a channel that the next Send closes. A caller that reads a state after the call
// and finds that it must wait does not miss a later change.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Send wakes those that wait.
func (b *Broadcast) Send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
