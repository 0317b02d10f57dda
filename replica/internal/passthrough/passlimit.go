// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/internal/warning"
)

// passLimit bounds how many requests one cluster answers at a time, and how many of them are of
// one user, if users are known. It costs about 100 bytes per user with a request in flight.
type passLimit struct {
	limit, perUser int

	mu    sync.Mutex
	taken int
	users map[string]int
}

// newPassLimit returns a limit of n requests, half of them for one user.
func newPassLimit(n int) passLimit { return passLimit{limit: n, perUser: max(1, n/2)} }

// take takes a place for a request of a user. It does not wait: a client that waits would
// take a place in the replica. The caller calls done.
func (p *passLimit) take(user, what, cluster string) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	refused := func(n int, whose string) error {
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d %s%s are being passed on to cluster %s, please try again "+
			"later",
			n, what, whose, warning.Shorten(cluster, warning.MaxName)), 1)
	}
	switch {
	case p.taken >= p.limit:
		return nil, refused(p.limit, "")
	case user != "" && p.users[user] >= p.perUser:
		return nil, refused(p.perUser, " of this user")
	}
	if p.users == nil {
		p.users = map[string]int{}
	}
	p.taken++
	p.users[user]++
	return func() { p.leave(user) }, nil
}

func (p *passLimit) leave(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if left := p.users[user] - 1; left > 0 {
		p.users[user] = left
		return
	}
	delete(p.users, user)
}
