// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// FleetRead is a request for the past of the members that a request below /fleet selects. Members are read one
// after the other, because at most two reads of files run at once for all requests together.
type FleetRead struct {
	*Reader
	r *http.Request
	q *Request
	// members have the resource in the version of the request, and the caller sees them.
	members    []*fleet.Member
	namespaced bool
	// seesAll reports whether the caller may read the resource in all namespaces of a member. The
	// clusters are asked when that is needed.
	seesAll func() (func(*fleet.Member) bool, error)
}

// Fleet returns the read of members that have a resource in the version of a request.
func (p *Reader) Fleet(r *http.Request, q *Request, members []*fleet.Member, namespaced bool) *FleetRead {
	read := &FleetRead{Reader: p, r: r, q: q, members: members, namespaced: namespaced}
	read.seesAll = sync.OnceValues(func() (func(*fleet.Member) bool, error) { return q.Rights.AllNamespacesIn() })
	return read
}

// Serve answers with a state of the past, or with changes. The view is that of the fleet, and answer serves a view.
func (p *FleetRead) Serve(w http.ResponseWriter, present *view.Fleet, answer func(view.View) error) error {
	if p.q.Query.Has(changesParameter) {
		return p.serveChanges(w)
	}
	at, err := p.q.timeOf(pastParameter, time.Now())
	if err != nil {
		return err
	}
	place := &place{budget: p.budget, user: p.q.User, objects: p.objects}
	defer place.leave()
	return answer(present.At(at, func(ctx context.Context, at time.Time) ([]view.Part, error) {
		if objects := p.objects(); objects > mostFleetObjects {
			return nil, tooManyObjects(objects)
		}
		if err := place.enter(); err != nil {
			return nil, err
		}
		setTime(w, at)
		return p.parts(ctx, w.Header(), at, place)
	}))
}

func tooManyObjects(objects int) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%d objects are too many for the past of the fleet, which may have %d: "+
		"select a namespace, or clusters with the label %s, or read one cluster below /clusters",
		objects, mostFleetObjects, view.ClusterLabel))
}

// objects returns about how many objects the request holds: as many as there are now.
func (p *FleetRead) objects() (n int) {
	if p.q.key(p.namespaced) != "" {
		return len(p.members)
	}
	prefix := view.ObjectKey(p.q.Namespace, "")
	for _, m := range p.members {
		feed, ok := m.Feed(p.q.GroupResource())
		if !ok {
			continue
		}
		now, err := feed.Now()
		switch {
		case err != nil:
		case prefix == "":
			n += now.State.Len()
		default:
			for range now.State.Range(prefix, "") {
				n++
			}
		}
	}
	return n
}

// parts returns the objects of the members at a time. Members whose past is not known are left
// out and named in a warning, unless there is no other, or none of the others has the object that
// the request names.
func (p *FleetRead) parts(ctx context.Context, header http.Header, at time.Time, place *place) ([]view.Part, error) {
	parts, objects := []view.Part{}, 0
	left := map[string][]string{}
	var failed error
	for _, m := range p.members {
		past, err := p.read(ctx, m, at)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			failed = err
			why := view.PastError(p.q.GroupResource(), at, err).Error()
			left[why] = append(left[why], m.Name())
			continue
		}
		parts = append(parts, view.PastPart(m.Name(), past))
		if key := p.q.key(p.namespaced); key == "" {
			objects += past.Len()
		} else if _, ok := past.Get(key); ok { // a state that is kept has others too
			objects++
		}
		if objects > mostFleetObjects {
			return nil, tooManyObjects(objects)
		}
		if err := place.hold(objects); err != nil {
			return nil, err
		}
	}
	if failed != nil && (len(parts) == 0 || p.q.Name != "" && objects == 0) {
		return nil, view.PastError(p.q.GroupResource(), at, failed)
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		warning.Add(header, fmt.Sprintf("left out: cluster %s: %s", warning.Names(left[why]), why))
	}
	return parts, nil
}

// read returns the objects of a member at a time.
func (p *FleetRead) read(ctx context.Context, m *fleet.Member, at time.Time) (*history.Archived, error) {
	feed, ok := m.Feed(p.q.GroupResource())
	if !ok {
		return nil, history.ErrNotReady
	}
	switch since, err := p.visibleSince(m, at); {
	case err != nil:
		return nil, err
	case since.After(at):
		return nil, errNewNamespace(p.q.AllowedNamespace)
	}
	wanted := history.Wanted{Key: p.q.key(p.namespaced)}
	if prefix := view.ObjectKey(p.q.Namespace, ""); prefix != "" {
		wanted.Keys = func(key string) bool { return strings.HasPrefix(key, prefix) }
	}
	past, err := feed.AtTime(ctx, at, wanted)
	if err != nil {
		return nil, err
	}
	visible := visibility{p.q, m}
	return past, visible.checkObjects(past, p.seesAllOf(m))
}

// seesAllOf returns a function that reports whether the caller may read all namespaces of a member.
func (p *FleetRead) seesAllOf(m *fleet.Member) func() bool {
	return func() bool {
		seesAll, err := p.seesAll()
		return err == nil && seesAll(m)
	}
}

// visibleSince returns the time since which the caller may read a member: a time, or the creation
// of the namespace of the request if that is later, unless the caller may read all namespaces.
func (p *FleetRead) visibleSince(m *fleet.Member, since time.Time) (time.Time, error) {
	namespace := p.q.AllowedNamespace
	visible := visibility{p.q, m}
	if p.q.Rights == nil || namespace == "" || visible.existed(namespace, since) {
		return since, nil
	}
	seesAll, err := p.seesAll()
	if err != nil || seesAll(m) {
		return since, err
	}
	if created, ok := visible.created(namespace); ok {
		return created.Add(time.Second), nil
	}
	return since, errNewNamespace(namespace)
}

// memberChanges are the changes of one member that are not written yet.
type memberChanges struct {
	cluster string
	next    func() (history.PastChange, error, bool)
	stop    func()
	// change and err are the next one.
	change history.PastChange
	err    error
}

// advance reads the next change, and reports whether there is one.
func (c *memberChanges) advance() (ok bool) {
	c.change, c.err, ok = c.next()
	return ok
}

// serveChanges answers with the changes of all members, merged by the times at which they arrived.
func (p *FleetRead) serveChanges(w http.ResponseWriter) error {
	since, until, err := p.q.changesPeriod()
	if err != nil {
		return err
	}
	place := &place{budget: p.budget, user: p.q.User, objects: func() int { return p.q.changesPlaces(len(p.members)) }}
	if err := place.enter(); err != nil {
		return err
	}
	defer place.leave()
	list := document.ChangeList{Since: until.UTC()}
	all, failed := p.openChanges(&list, since, until, place)
	defer func() {
		for _, c := range all {
			c.stop()
		}
	}()
	if failed != nil {
		return failed
	}
	return p.writeChanges(w, p.r, list, merged(all))
}

const (
	// mostHeld is about how many bytes the first changes of all clusters may have.
	mostHeld = 16 << 20
	// mostBusy is how many clusters may have more than their first changes. They are read in
	// parts, and each part of a resource costs a read of the state before it.
	mostBusy = 64
)

// openChanges reads the first changes of all members. The list receives the members that have
// less than the period, and the beginning of the earliest one. The caller stops what is returned,
// also after an error.
func (p *FleetRead) openChanges(
	list *document.ChangeList, since, until time.Time, place *place,
) (all []*memberChanges, err error) {
	var failed error
	var busy []*history.PastChanges
	held := 0
	for _, m := range p.members {
		changes, err := p.changes(m, since, until)
		if err != nil && p.r.Context().Err() != nil {
			return all, err
		}
		if err != nil {
			failed = view.PastError(p.q.GroupResource(), since, err)
			list.Clusters = append(list.Clusters, document.PartialCluster{Name: m.Name(), Message: failed.Error()})
			continue
		}
		began := changes.Since.UTC()
		if began.After(since) {
			list.Clusters = append(list.Clusters, document.PartialCluster{Name: m.Name(), Since: &began})
		}
		if began.Before(list.Since) {
			list.Since = began
		}
		visible := visibility{p.q, m}
		next, stop := iter.Pull2(visible.withoutFormer(changes.All(p.r.Context()), p.seesAllOf(m)))
		all = append(all, &memberChanges{cluster: m.Name(), next: next, stop: stop})
		bytes, more := changes.Held()
		if held += bytes; more {
			busy = append(busy, changes)
		}
		if held > mostHeld || len(busy) > mostBusy && p.q.Name == "" {
			return all, apierrors.NewBadRequest(fmt.Sprintf("the changes of %d clusters are too many for one "+
				"response: "+
				"select an object, a shorter period, or clusters with the label %s", len(p.members), view.ClusterLabel))
		}
	}
	for _, changes := range busy {
		changes.Share(len(busy))
	}
	if len(all) == 0 {
		return nil, failed
	}
	return all, place.hold(held / pastObjectBytes)
}

// changes returns the changes of a member.
func (p *FleetRead) changes(m *fleet.Member, since, until time.Time) (*history.PastChanges, error) {
	feed, ok := m.Feed(p.q.GroupResource())
	if !ok {
		return nil, history.ErrNotReady
	}
	since, err := p.visibleSince(m, since)
	if err != nil {
		return nil, err
	}
	query := p.q.changesQuery(since, until)
	query.Readers = len(p.members)
	return feed.Changes(p.r.Context(), query)
}

// merged yields the changes of members in the order of their times. It looks at the next change
// of each member for every change: a thousand comparisons cost less than to encode one.
func merged(all []*memberChanges) iter.Seq[document.Change] {
	return func(yield func(document.Change) bool) {
		left := slices.DeleteFunc(slices.Clone(all), func(c *memberChanges) bool { return !c.advance() })
		for len(left) > 0 {
			first := slices.MinFunc(left, func(a, b *memberChanges) int { return a.change.Time.Compare(b.change.Time) })
			change := describe(&first.change, first.err)
			change.Cluster = first.cluster
			if !yield(change) {
				return
			}
			if !first.advance() {
				left = slices.DeleteFunc(left, func(c *memberChanges) bool { return c == first })
			}
		}
	}
}
