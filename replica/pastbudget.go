// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet/history"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
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

// changesPlaces returns how many objects a request for changes in some clusters counts as. The
// part of each cluster has at least 8 KiB.
func (q *Request) changesPlaces(clusters int) int {
	alone := changesObjects
	if q.Name != "" {
		alone = objectChanges
	}
	return max(alone, clusters*(8<<10)/pastObjectBytes)
}

// pastPlace is the place of one request for the past.
type pastPlace struct {
	budget *respond.Budget
	user   string
	// objects returns how many objects the request may hold.
	objects func() int
	// taken is how many objects the request has taken from the budget.
	taken int
}

// place returns the place of a request for the past of a feed.
func (p *pastReads) place(q *Request, feed *history.Feed) *pastPlace {
	return &pastPlace{budget: p.past, user: q.user(), objects: func() int {
		now, err := feed.Now()
		switch {
		case q.Query.Has(changesParameter) || err != nil:
			return q.changesPlaces(1)
		case q.pastKey(feed.Resource().Namespaced) != "" && q.ReadsPast() && !q.Query.Has("continue"):
			return 1
		}
		return now.State.Len()
	}}
}

// gate returns the gate of a request.
func (p *pastReads) gate(r *http.Request, q *Request, place *pastPlace) view.Gate {
	return view.Gate{Allow: p.allow(r, q), Enter: place.enter, Check: func(past *history.Archived) error {
		if err := place.hold(past.Len()); err != nil {
			return err
		}
		return p.checkObjects(q.attributes.Namespace, past, p.seesAll(r, q))
	}}
}

// enter takes the memory that the request needs. If it reads a second state, because of
// a continue token, it gives up the first.
func (p *pastPlace) enter() error {
	p.leave()
	var err error
	p.taken, err = takePast(p.budget, p.user, p.objects())
	return err
}

// hold takes what is missing for a state that was read: it can have more objects than there are now.
func (p *pastPlace) hold(objects int) error {
	missing := min(objects, mostPastObjects) - p.taken
	if missing <= 0 {
		return nil
	}
	more, err := takePast(p.budget, p.user, missing)
	p.taken += more
	return err
}

// leave releases what enter and hold have taken.
func (p *pastPlace) leave() {
	p.budget.Release(p.user, p.taken)
	p.taken = 0
}

// takePast takes objects for a request for the past, fewer than it asks for if it asks for too many.
func takePast(b *respond.Budget, user string, objects int) (taken int, err error) {
	taken = b.Take(user, min(max(objects, 1), mostPastObjects))
	if taken == 0 {
		return 0, apierrors.NewTooManyRequests("too much of the past is being read, please try again later", 1)
	}
	return taken, nil
}
