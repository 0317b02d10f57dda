// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

const (
	// pastObjects is how many objects all requests for the past together may hold until their
	// responses are written: about 25 MB. A request for more than mostPastObjects
	// counts as that many at most, although it holds more.
	pastObjects     = 30_000
	mostPastObjects = pastObjects / 4
	// pastObjectBytes is about how many bytes an object takes.
	pastObjectBytes = 800
	// mostFleetObjects is how many objects a list of the past of the fleet may have.
	mostFleetObjects = 50_000
	// changesObjects and objectChanges are how many objects a request for changes counts as: for a
	// whole resource, and for one object. They stand for the part that the request holds while its
	// client reads, about 4 MB and 256 KiB.
	changesObjects = 5_000
	objectChanges  = 320
)

// place is the place of one request for the past.
type place struct {
	budget *respond.Budget
	user   string
	// objects returns how many objects the request may hold.
	objects func() int
	// taken is how many objects the request has taken from the budget.
	taken int
}

// enter takes the memory that the request needs. If it reads a second state, because of
// a continue token, it gives up the first.
func (p *place) enter() error {
	p.leave()
	var err error
	p.taken, err = takeObjects(p.budget, p.user, p.objects())
	return err
}

// hold takes what is missing for a state that was read: it can have more objects than there are now.
func (p *place) hold(objects int) error {
	missing := min(objects, mostPastObjects) - p.taken
	if missing <= 0 {
		return nil
	}
	more, err := takeObjects(p.budget, p.user, missing)
	p.taken += more
	return err
}

// leave releases what enter and hold have taken.
func (p *place) leave() {
	p.budget.Release(p.user, p.taken)
	p.taken = 0
}

// takeObjects takes objects for a request for the past, fewer than it asks for if it asks for too many.
func takeObjects(b *respond.Budget, user string, objects int) (taken int, err error) {
	taken = b.Take(user, min(max(objects, 1), mostPastObjects))
	if taken == 0 {
		return 0, apierrors.NewTooManyRequests("too much of the past is being read, please try again later", 1)
	}
	return taken, nil
}
