// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet"
)

const (
	// pastObjects is how many objects all requests for the past together may hold until their
	// responses are written: some 150 MB. A request counts for mostPastObjects at most.
	pastObjects     = 200_000
	mostPastObjects = pastObjects / 4
	// changesObjects is what a request for changes counts for: the part that it holds while
	// its client reads.
	changesObjects = 5_000
)

// pastBudget bounds the memory of the requests for the past, fairly between users: a user gets
// more only while it holds less than is free. So a user that holds nothing is served even if
// the clients of others are slow. The zero value is ready to use.
type pastBudget struct {
	mu    sync.Mutex
	taken int
	users map[string]int
}

// take takes objects for a request of a user. It does not wait: a client that waits would take
// memory too. The caller calls done when the response is written.
func (b *pastBudget) take(user string, objects int) (done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := pastObjects - b.taken
	if b.users[user] >= free {
		return nil, apierrors.NewTooManyRequests("too much of the past is being read, please try again later", 1)
	}
	objects = min(max(objects, 1), mostPastObjects, free)
	if b.users == nil {
		b.users = map[string]int{}
	}
	b.taken += objects
	b.users[user] += objects
	return func() { b.release(user, objects) }, nil
}

func (b *pastBudget) release(user string, objects int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= objects
	if b.users[user] -= objects; b.users[user] == 0 {
		delete(b.users, user)
	}
}

// pastPlace is the place of one request for the past of a feed.
type pastPlace struct {
	budget *pastBudget
	user   string
	feed   *fleet.Feed
	// changes means that the request is for changes.
	changes bool
	done    func() // nil if the request has not entered
}

func (p *pastReads) place(q *Request, feed *fleet.Feed) *pastPlace {
	return &pastPlace{budget: &p.budget, user: q.user(), feed: feed, changes: q.Query.Has(changesParameter)}
}

// enter takes the memory that the request needs. If it reads a second state, because of
// a continue token, it gives up the first.
func (p *pastPlace) enter() error {
	p.leave()
	objects := changesObjects
	if now, err := p.feed.Now(); err == nil && !p.changes {
		objects = now.State.Len()
	}
	done, err := p.budget.take(p.user, objects)
	p.done = done
	return err
}

// leave releases what enter has taken.
func (p *pastPlace) leave() {
	if p.done != nil {
		p.done()
		p.done = nil
	}
}
