// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
)

// request has the resource and the parameters of a query.
type request struct {
	resource  string
	cluster   string
	namespace string
	selector  labels.Selector // nil selects everything
	// index and value are conditions if indexed is set.
	index, value string
	indexed      bool
	keysOnly     bool
	limit        int
	// after is the key that the response continues from.
	after string
}

// parameters has the functions that read the parameters of a list.
var parameters = map[string]func(q *request, value string) error{
	"cluster":   func(q *request, value string) error { q.cluster = value; return nil },
	"namespace": func(q *request, value string) error { q.namespace = value; return nil },
	"labelSelector": func(q *request, value string) (err error) {
		q.selector, err = labels.Parse(value)
		return err
	},
	"index": func(q *request, value string) error { q.index = value; return nil },
	"value": func(q *request, value string) error {
		q.value = value
		q.indexed = true
		return nil
	},
	"continue": func(q *request, value string) error { q.after = value; return nil },
	"keys": func(q *request, value string) (err error) {
		q.keysOnly, err = strconv.ParseBool(value)
		return err
	},
	"limit": func(q *request, value string) (err error) {
		q.limit, err = strconv.Atoi(value)
		return err
	},
}

// parse reads the parameters of a request for one object of a resource or for a list, from
// one cluster or from the clusters of a fleet. It refuses a parameter that it does not know: a
// misspelt selector would return too much.
func parse(resource, query string, object, clusters bool, limit int) (*request, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "parameters: %v", err)
	}
	q := &request{resource: resource}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, known := parameters[name]
		if !known || object && name != "cluster" || name == "cluster" && !clusters {
			return nil, refuse(http.StatusBadRequest, "parameter %q is not supported here", name)
		}
		if len(values[name]) > 1 {
			return nil, refuse(http.StatusBadRequest, "parameter %q occurs %d times", name, len(values[name]))
		}
		if err := set(q, values[name][0]); err != nil {
			return nil, refuse(http.StatusBadRequest, "parameter %q: %v", name, err)
		}
	}
	switch {
	case object && clusters && q.cluster == "":
		return nil, refuse(http.StatusBadRequest, "one object of a fleet needs the parameter cluster")
	case values.Has("index") != values.Has("value"):
		return nil, refuse(http.StatusBadRequest, "the parameters index and value need each other")
	case q.limit > limit || q.limit < 0:
		return nil, refuse(http.StatusBadRequest, "parameter \"limit\": %d is not between 1 and %d", q.limit, limit)
	case q.limit == 0:
		q.limit = limit
	}
	return q, nil
}
