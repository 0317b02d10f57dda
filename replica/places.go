// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/internal/warning"
)

// places bounds how many requests one cluster answers at a time, and how many of them are of
// one user, if users are known. It has some 100 bytes for each user that has one.
type places struct {
	limit, perUser int

	mu    sync.Mutex
	taken int
	users map[string]int
}

// take takes a place for a request of a user. It does not wait: a client that waits would
// take a place in the replica. The caller calls done.
func (p *places) take(user, what, cluster string) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.taken >= p.limit:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d %s are being passed on to cluster %s, please try again later", p.limit, what, warning.Shorten(cluster, warning.MaxName)), 1)
	case user != "" && p.users[user] >= p.perUser:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d %s of this user are being passed on to cluster %s, please try again later", p.perUser, what, warning.Shorten(cluster, warning.MaxName)), 1)
	}
	if p.users == nil {
		p.users = map[string]int{}
	}
	p.taken++
	p.users[user]++
	return func() { p.leave(user) }, nil
}

func (p *places) leave(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if left := p.users[user] - 1; left > 0 {
		p.users[user] = left
		return
	}
	delete(p.users, user)
}
