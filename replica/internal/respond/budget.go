// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import "sync"

// Budget bounds what the responses that are being written hold together, fairly between users: a user gets more only
// while it holds less than is free. So a user that holds nothing is served even if the clients of others are slow.
// A budget takes some 100 bytes for each user that holds something. All methods are safe for concurrent use.
type Budget struct {
	limit int

	mu    sync.Mutex
	taken int
	users map[string]int
}

// NewBudget returns a budget of limit units: objects or bytes, as its users agree.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// Taken returns how much is taken now.
func (b *Budget) Taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// Take takes up to n for a request of a user, and returns how much it has taken: 0 if the user
// must do without. It does not wait: a request that waits would take memory too. The caller
// releases what was taken.
func (b *Budget) Take(user string, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.limit - b.taken
	if b.users[user] >= free {
		return 0
	}
	n = min(n, free)
	if b.users == nil {
		b.users = map[string]int{}
	}
	b.taken += n
	b.users[user] += n
	return n
}

// Release returns what a request of a user has taken.
func (b *Budget) Release(user string, n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.users[user] -= n; b.users[user] == 0 {
		delete(b.users, user)
	}
}
