// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/view"
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

// Request is what this package needs to know about a request for a resource, or for the numbers of changes.
type Request struct {
	schema.GroupVersionResource
	Verb, Namespace, Name, Subresource string
	Query                              url.Values
	// Fleet means that the request addresses all clusters.
	Fleet bool
	// User is the user that sent the request, "" without access control.
	User string
	// AllowedNamespace and AllowedName are the namespace and the name by which the request is authorized:
	// a request for a namespace has that namespace, and a list of one name has that name.
	AllowedNamespace, AllowedName string
	// Rights are those of the caller, nil without access control.
	Rights Rights
}

// Rights decide what the caller of a request may read.
type Rights interface {
	// AllNamespaces returns why the caller may not send the request for all namespaces, nil if the caller may.
	AllNamespaces() error
	// AllNamespacesIn returns a function that reports in which members the caller may do that.
	AllNamespacesIn() (func(*fleet.Member) bool, error)
	// ListIn returns a function that reports in which members the caller may list a resource in all
	// namespaces.
	ListIn(resource schema.GroupVersionResource) (func(*fleet.Member) bool, error)
}

// IsRequested reports whether a request with these parameters reads a state of the past, or changes.
func IsRequested(query url.Values) bool {
	return query.Has(pastParameter) || query.Has(changesParameter)
}

// timeOf returns the time of a parameter.
func (q *Request) timeOf(name string, now time.Time) (time.Time, error) {
	text := q.Query.Get(name)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		ago, failed := time.ParseDuration(text)
		if failed != nil {
			return at, apierrors.NewBadRequest(fmt.Sprintf(
				"%s=%q is neither a time such as 2026-01-31T15:04:05Z nor a duration such as 90m", name, text))
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

// key returns the key of the object that a request is for, "" if it can be for several.
func (q *Request) key(namespaced bool) string {
	name := q.AllowedName // also that of a field selector
	if name == "" || namespaced && q.Namespace == "" {
		return ""
	}
	return view.ObjectKey(q.Namespace, name)
}

// changesPeriod returns the times of a request for the changes of objects.
func (q *Request) changesPeriod() (since, until time.Time, err error) {
	if q.Subresource != "" {
		// They would show fields that the right to the subresource does not include.
		return since, until, apierrors.NewBadRequest("changes of a subresource are not known: read those of the object")
	}
	if since, until, err = q.period(changesParameter, time.Now()); err != nil {
		return since, until, err
	}
	selected, err := q.selectsObjects()
	if err == nil && (selected || q.Query.Get("fieldSelector") != "") {
		err = apierrors.NewBadRequest("changes cannot be selected by labels or fields")
	}
	return since, until, err
}

// selectsObjects reports whether a request has requirements on the labels of objects. Below /fleet
// it may have others, on clusters.
func (q *Request) selectsObjects() (bool, error) {
	selector, err := labels.Parse(q.Query.Get("labelSelector"))
	if err != nil {
		return false, apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	if q.Fleet {
		_, selector = view.SplitSelector(selector)
	}
	return !selector.Empty(), nil
}

// changesQuery returns the query for the changes of the objects that a request is for.
func (q *Request) changesQuery(since, until time.Time) history.PastQuery {
	wanted := history.Wanted{Key: view.ObjectKey(q.Namespace, q.Name)}
	if q.Name == "" {
		prefix := view.ObjectKey(q.Namespace, "")
		wanted = history.Wanted{Keys: func(key string) bool { return strings.HasPrefix(key, prefix) }}
	}
	return history.PastQuery{Since: since, Until: until, Wanted: wanted}
}

// changesPlaces returns how many objects a request for changes in some clusters counts as. The
// part of each cluster has at least 8 KiB.
func (q *Request) changesPlaces(clusters int) int {
	alone := changesObjects
	if q.Name != "" {
		alone = objectChanges
	}
	return max(alone, clusters*(8<<10)/pastObjectBytes)
}
