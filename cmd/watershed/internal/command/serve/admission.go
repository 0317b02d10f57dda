// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/overload"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/replica"
	"github.com/watershed-project/watershed/wire"
)

// admission bounds the work in progress by the cost of each request.
type admission struct {
	fleet   *fleet.Fleet
	limiter *overload.Limiter
}

// admit waits until the request of an authenticated user may be served.
func (a *admission) admit(r *http.Request, q *replica.Request, user string) (done func(), err error) {
	serving.Authenticated(r)
	if q.Passed {
		// The cluster does the work. The replica limits how many requests it passes on to
		// each, so that a slow one does not take the places of the others.
		return func() {}, nil
	}
	cost := a.cost(q)
	if q.Attributes().Verb != "watch" {
		return a.limiter.Admit(r.Context(), user, cost)
	}
	q.Started, done, err = a.limiter.AdmitWatch(r.Context(), user, cost, overload.Places(len(r.URL.RawQuery)))
	return done, err
}

// cost returns the cost of a request, by the number of objects that have to be read for it.
func (a *admission) cost(q *replica.Request) overload.Cost {
	attributes := q.Attributes()
	switch {
	case q.ReadsPast():
		objects := a.objects(q)
		if q.Name != "" {
			// An index leads to the object, in each cluster.
			objects = min(objects, pastObject*max(len(a.members(q)), 1))
		}
		return overload.List(objects)
	case q.Path == document.ChangesPath && (q.Fleet || q.Member != nil):
		objects := 0
		for _, m := range a.members(q) {
			objects += allObjects(m)
		}
		return overload.List(objects)
	case !attributes.IsResource, q.Name != "", attributes.Name != "" && a.hasKey(q):
		return overload.Get
	case attributes.Verb == "watch":
		if version := q.Query.Get("resourceVersion"); version != "" && version != "0" &&
			q.Query.Get("sendInitialEvents") == "" {
			return overload.Get // it continues, and begins without a list
		}
	case attributes.Verb != "list":
		return overload.Get
	}
	objects := a.objects(q)
	if strings.TrimSpace(q.Namespace) != "" && !q.Fleet {
		// The objects of a namespace are next to each other, and are usually a small part.
		objects /= 10
	}
	// A page of a list without selectors reads no more than the page.
	if limit, err := strconv.Atoi(q.Query.Get("limit")); err == nil && limit > 0 &&
		q.Query.Get("resourceVersion") != "0" && attributes.FieldSelector == "" && attributes.LabelSelector == "" {
		objects = min(objects, limit)
	}
	return overload.List(objects)
}

// pastObject is how many objects of a list cost as much as the past of one object.
const pastObject = 5000

// members returns the members that a request reads.
func (a *admission) members(q *replica.Request) []*fleet.Member {
	switch {
	case q.Fleet:
		return a.fleet.Members()
	case q.Member != nil:
		return []*fleet.Member{q.Member}
	}
	return nil
}

// hasKey reports whether the name that the field selector of a list requires leads to one
// object. Without a namespace it does not, and all objects are read.
func (a *admission) hasKey(q *replica.Request) bool {
	if q.Namespace != "" || q.Member == nil {
		return q.Namespace != ""
	}
	feed, ok := q.Member.Feed(q.GroupResource())
	return ok && !feed.Resource().Namespaced
}

// objects returns how many objects a resource has.
func (a *admission) objects(q *replica.Request) int {
	if q.Fleet {
		return fleet.OfResource[*wire.Object](a.fleet, q.GroupResource()).Len()
	}
	if q.Member == nil {
		return 0
	}
	return objectsOf(q.Member, q.GroupResource())
}

// allObjects returns how many objects a member has.
func allObjects(m *fleet.Member) (n int) {
	for _, mirrored := range m.Resources() {
		n += objectsOf(m, mirrored.Resource.GroupResource())
	}
	return n
}

// objectsOf returns how many objects of a resource a member has.
func objectsOf(m *fleet.Member, resource schema.GroupResource) int {
	feed, ok := m.Feed(resource)
	if !ok {
		return 0
	}
	now, err := feed.Now()
	if err != nil {
		return 0
	}
	return now.State.Len()
}
