// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// Reader answers the requests for the past that a server receives. All methods are safe for concurrent use.
type Reader struct {
	// budget bounds the objects that all requests hold.
	budget  *respond.Budget
	tracker *respond.Tracker
	logger  *slog.Logger
}

// New returns a reader. What is written to clients is added to a tracker.
func New(tracker *respond.Tracker, logger *slog.Logger) *Reader {
	return &Reader{budget: respond.NewBudget(pastObjects), tracker: tracker, logger: logger}
}

// ClusterRead is a request for a resource of one cluster, which may read the past: also a list with a continue token
// may.
type ClusterRead struct {
	*Reader
	visibility
	r     *http.Request
	feed  *history.Feed
	place *place
}

// Cluster begins a request for the resource of a feed. The caller calls [ClusterRead.End].
func (p *Reader) Cluster(m *fleet.Member, r *http.Request, q *Request, feed *history.Feed) *ClusterRead {
	return &ClusterRead{Reader: p, visibility: visibility{q, m}, r: r, feed: feed, place: p.newPlace(q, feed)}
}

// End releases what the request holds.
func (p *ClusterRead) End() { p.place.leave() }

// Gate returns what a view of the cluster asks before it shows the past.
func (p *ClusterRead) Gate() view.Gate {
	return view.Gate{Allow: p.allow, Enter: p.place.enter, Check: func(past *history.Archived) error {
		if err := p.place.hold(past.Len()); err != nil {
			return err
		}
		return p.checkObjects(past, p.seesAll())
	}}
}

// Serve answers with a state of the past, or with changes. The view is that of the cluster, and answer serves a view.
func (p *ClusterRead) Serve(w http.ResponseWriter, present *view.Cluster, answer func(view.View) error) error {
	if p.q.Query.Has(changesParameter) {
		return p.serveChanges(w)
	}
	at, err := p.q.timeOf(pastParameter, time.Now())
	if err != nil {
		return err
	}
	key := p.q.key(p.feed.Resource().Namespaced)
	return answer(present.At(at, key, func(arrived time.Time) { setTime(w, arrived) }))
}

// serveChanges answers with the changes of the objects that the request names.
func (p *ClusterRead) serveChanges(w http.ResponseWriter) error {
	since, until, err := p.q.changesPeriod()
	if err != nil {
		return err
	}
	if since, err = p.visibleSince(since); err != nil {
		return err
	}
	if err := p.place.enter(); err != nil {
		return err
	}
	changes, err := p.feed.Changes(p.r.Context(), p.q.changesQuery(since, until))
	if err != nil {
		return view.PastError(p.feed.Resource().GroupResource(), since, err)
	}
	head := document.ChangeList{Since: changes.Since.UTC()}
	all := p.withoutFormer(changes.All(p.r.Context()), p.seesAll())
	return p.writeChanges(w, p.r, head, func(yield func(document.Change) bool) {
		for change, err := range all {
			if !yield(describe(&change, err)) {
				return
			}
		}
	})
}

// newPlace returns the place of a request for the past of a feed.
func (p *Reader) newPlace(q *Request, feed *history.Feed) *place {
	return &place{budget: p.budget, user: q.User, objects: func() int {
		now, err := feed.Now()
		switch {
		case q.Query.Has(changesParameter) || err != nil:
			return q.changesPlaces(1)
		case q.key(feed.Resource().Namespaced) != "" && IsRequested(q.Query) && !q.Query.Has("continue"):
			return 1
		}
		return now.State.Len()
	}}
}

// pastHeader is the header of a response with a state of the past: when that state arrived.
const pastHeader = "Watershed-State-Time"

// setTime tells the client when a state arrived.
func setTime(w http.ResponseWriter, at time.Time) {
	w.Header().Set(pastHeader, at.UTC().Format(time.RFC3339Nano))
}
