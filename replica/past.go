// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/history"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

const (
	// pastParameter is the parameter of a get or a list that reads a state of the past: a
	// time, or how long ago it was.
	pastParameter = "at"
	// changesParameter is the parameter of a get or a list that returns the changes since a
	// time, or since how long ago, and untilParameter is when they end.
	changesParameter = "changes"
	untilParameter   = "until"
)

// pastHeader is the header of a response with a state of the past: when that state arrived.
const pastHeader = "Watershed-State-Time"

func setPastTime(w http.ResponseWriter, at time.Time) {
	w.Header().Set(pastHeader, at.UTC().Format(time.RFC3339Nano))
}

// ReadsPast reports whether a request is for a state of the past, or for changes. Then files are
// read: all objects of the resource, or the log of the one that the request names.
func (q *Request) ReadsPast() bool {
	return q.IsResource && (q.Verb == "get" || q.Verb == "list" || q.Verb == "watch") && (q.Query.Has(pastParameter) || q.Query.Has(changesParameter))
}

// timeOf returns the time of a parameter.
func (q *Request) timeOf(name string, now time.Time) (time.Time, error) {
	text := q.Query.Get(name)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		ago, failed := time.ParseDuration(text)
		if failed != nil {
			return at, apierrors.NewBadRequest(fmt.Sprintf("%s=%q is neither a time such as 2026-01-31T15:04:05Z nor a duration such as 90m", name, text))
		}
		at = now.Add(-ago)
	}
	switch {
	case at.After(now):
		return at, apierrors.NewBadRequest(fmt.Sprintf("%s=%q is in the future", name, text))
	case q.Verb == "watch":
		return at, apierrors.NewBadRequest("the past cannot be watched: use a list")
	case q.Query.Get("resourceVersion") != "":
		return at, apierrors.NewBadRequest(name + " and resourceVersion cannot be combined")
	}
	return at, nil
}

// period returns the times of a request for changes. The first is that of a parameter.
func (q *Request) period(first string, now time.Time) (since, until time.Time, err error) {
	if since, err = q.timeOf(first, now); err != nil || !q.Query.Has(untilParameter) {
		return since, now, err
	}
	if until, err = q.timeOf(untilParameter, now); err == nil && until.Before(since) {
		err = apierrors.NewBadRequest(fmt.Sprintf("%s is before %s", untilParameter, first))
	}
	return since, until, err
}

// pastReads reads the past of a cluster.
type pastReads struct {
	*shared
	member *fleet.Member
}

// allow returns a function that reports whether a request may read a time in the past.
// Rights are those of now. The namespace of the request may have been deleted and created
// again since, for others: then its past needs the right for all namespaces.
func (p *pastReads) allow(r *http.Request, q *Request) func(time.Time) error {
	return func(at time.Time) error {
		namespace := q.attributes.Namespace
		if p.authorize == nil || namespace == "" || p.existed(namespace, at) {
			return nil
		}
		_, err := p.authorize(r, q.wide())
		return err
	}
}

// seesAll returns a function that reports whether the caller may read all namespaces. It asks once.
func (p *pastReads) seesAll(r *http.Request, q *Request) func() bool {
	return sync.OnceValue(func() bool {
		_, err := p.authorize(r, q.wide())
		return err == nil
	})
}

// wide returns the request for all namespaces.
func (q *Request) wide() *Request {
	wide := *q
	wide.attributes.Namespace, wide.Namespace = "", ""
	return &wide
}

// pastKey returns the key of the object that a request is for, "" if it can be for several.
func (q *Request) pastKey(namespaced bool) string {
	name := q.attributes.Name // also that of a field selector
	if name == "" || namespaced && q.Namespace == "" {
		return ""
	}
	return view.ObjectKey(q.Namespace, name)
}

// existed reports whether a namespace is the same as at a time. It is false if that is not
// known.
func (p *pastReads) existed(namespace string, at time.Time) bool {
	created, ok := p.created(namespace)
	return ok && !at.Before(created.Add(time.Second))
}

// created returns when a namespace was created, in whole seconds as Kubernetes records it. It
// returns false if the namespace does not exist, or if the copy of the namespaces is not current:
// that copy may still have an older namespace of the same name.
func (p *pastReads) created(namespace string) (time.Time, bool) {
	feed, ok := p.member.Feed(schema.GroupResource{Resource: "namespaces"})
	if !ok || !freshness.IsCurrent(feed.Connection()) {
		return time.Time{}, false
	}
	now, err := feed.Now()
	if err != nil {
		return time.Time{}, false
	}
	o, ok := now.State.Get(namespace)
	if !ok {
		return time.Time{}, false
	}
	return o.Created(), true
}

// errNewNamespace returns the 403 for the past of a namespace that was created later, or whose time
// of creation is not known.
func errNewNamespace(namespace string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, namespace,
		errors.New("the namespace may have been deleted and created again since that time, and you may not read all namespaces"))
}

// isFormer returns a function that reports whether an object is from an earlier namespace of the
// same name. A copy that was not current for a while has such objects also after the namespace was
// created again. It returns nil if the caller may read them: seesAll reports whether the caller
// may read all namespaces, and is called if that matters.
func (p *pastReads) isFormer(namespace string, seesAll func() bool) func(*wire.Object) bool {
	if p.authorize == nil || namespace == "" {
		return nil
	}
	created, known := p.created(namespace)
	return func(o *wire.Object) bool { return o != nil && (!known || o.Created().Before(created)) && !seesAll() }
}

// checkObjects returns an error if a state has objects of an earlier namespace of the same name,
// and the caller may not read all namespaces.
func (p *pastReads) checkObjects(namespace string, past *history.Archived, seesAll func() bool) error {
	former := p.isFormer(namespace, seesAll)
	if former == nil {
		return nil
	}
	for _, prefix := range []string{namespace, namespace + "/"} { // the namespace itself, or its objects
		for key, o := range past.Range(prefix, "") {
			if (key == namespace || prefix != namespace) && former(o) {
				return errNewNamespace(namespace)
			}
		}
	}
	return nil
}
