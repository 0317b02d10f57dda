// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "sync"

// broadcast wakes all who wait for the next change of something. The zero value is ready. All
// methods are safe for concurrent use.
type broadcast struct {
	mu sync.Mutex
	// next is closed by the next send, nil if nothing waits for it.
	next chan struct{}
}

// wait returns a channel that the next send closes. A caller that reads a state after the call
// and finds that it must wait does not miss a later change.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// send wakes those that wait.
func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
