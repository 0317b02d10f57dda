// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	operators "k8s.io/apimachinery/pkg/selection"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// clusterLabel is a label that selectors below /fleet can use and no object has: the name
// of the cluster that the object is in. Objects have it as an annotation.
const clusterLabel = clusterAnnotation

// clusterSelector returns what the label selector of a request requires of clusters, nil
// if that is nothing. One that cannot be parsed is reported later, with all other
// parameters.
func clusterSelector(query url.Values) labels.Selector {
	text := query.Get("labelSelector")
	if !strings.Contains(text, clusterLabel) {
		return nil
	}
	all, err := labels.Parse(text)
	if err != nil {
		return nil
	}
	clusters, _ := splitSelector(all)
	return clusters
}

// splitSelector returns the requirements of a selector on clusters, nil if there are none,
// and those on objects.
func splitSelector(all labels.Selector) (clusters, objects labels.Selector) {
	if all == nil {
		return nil, nil
	}
	requirements, _ := all.Requirements()
	if !slices.ContainsFunc(requirements, isOfCluster) {
		return nil, all
	}
	clusters, objects = labels.NewSelector(), labels.NewSelector()
	for _, r := range requirements {
		if isOfCluster(r) {
			clusters = clusters.Add(r)
		} else {
			objects = objects.Add(r)
		}
	}
	return clusters, objects
}

func isOfCluster(r labels.Requirement) bool { return r.Key() == clusterLabel }

// selects reports whether the request is for the objects of a cluster.
func (c *collection) selects(cluster string) bool {
	return c.selector == nil || c.selector.Matches(labels.Set{clusterLabel: cluster})
}

// selected returns the view of the clusters that are selected, those included that join later. If
// the selector does not name them, it is that of all, and events are to be filtered.
func (c *collection) selected(all *fleet.View[*wire.Object]) *fleet.View[*wire.Object] {
	if c.selector == nil {
		return all
	}
	requirements, _ := c.selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case operators.Equals, operators.DoubleEquals, operators.In:
			return all.In(slices.DeleteFunc(r.ValuesUnsorted(), func(name string) bool { return !c.selects(name) })...)
		case operators.DoesNotExist:
			return all.In()
		}
	}
	return all
}

// Programs that watch /fleet must know that a namespace and a name are not enough to tell
// its objects apart, and say so with the header or the parameter of a query.
const (
	fleetHeader, fleetParameter = "Watershed-Fleet", "watershedFleet"
	keyedByCluster              = "keyed-by-cluster"
)

// keyed refuses a watch of the fleet by a program that may file objects by namespace and name, nil
// if it does not: it asks for tables, is kubectl get that prints, or says that it does not.
func (q *request) keyed() error {
	query := q.r.URL.Query()
	switch {
	case q.media.shape == table, q.r.Header.Get(fleetHeader) == keyedByCluster, query.Get(fleetParameter) == keyedByCluster, prints(q.r, query):
		return nil
	}
	return apierrors.NewBadRequest("a watch of /fleet has objects of several clusters, which may have the same namespace and name, and a cache with such keys would lose some: " +
		"watch /clusters/<name> instead, one cluster at a time; a program that tells objects apart by the annotation " + clusterAnnotation +
		" sends the header " + fleetHeader + ": " + keyedByCluster + " or adds " + fleetParameter + "=" + keyedByCluster + " to the query")
}

// prints reports whether a watch is that of kubectl get -w with an output other than tables. It
// has no way to send a header, and does not keep objects. Its commands that do, such as
// wait, ask for bookmarks.
func prints(r *http.Request, query url.Values) bool {
	return strings.HasPrefix(r.UserAgent(), "kubectl/") && !query.Has("allowWatchBookmarks") && !query.Has("sendInitialEvents")
}
