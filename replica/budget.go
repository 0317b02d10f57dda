// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import "sync"

// budget bounds what all requests together hold, fairly between users: a user gets more only
// while it holds less than is free. So a user that holds nothing is served even if the clients
// of others are slow. It has some 100 bytes for each user that holds something.
type budget struct {
	limit int

	mu    sync.Mutex
	taken int
	users map[string]int
}

// take takes up to n for a request of a user, and returns how much it has taken: 0 if the user
// must do without. It does not wait: a request that waits would take memory too. The caller
// releases what was taken.
func (b *budget) take(user string, n int) int {
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

// release returns what a request of a user has taken.
func (b *budget) release(user string, n int) {
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
