// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	operators "k8s.io/apimachinery/pkg/selection"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/wire"
)

// Fleet is a resource of all clusters that have it in one version, with versions of its
// own. Objects keep the versions that they have in their clusters.
type Fleet struct {
	fleet    *fleet.Fleet
	resource schema.GroupVersionResource
	pins     *Pins
	// view has the clusters that hold the resource in the version.
	view *fleet.View[*wire.Object]
	// selector is what the request requires of the names of clusters, nil if nothing.
	selector labels.Selector
	// selected is how many clusters that hold the resource are selected.
	selected int
}

// OfFleet returns the view of a resource of the clusters that hold it. Selected is how many
// of them the selector selects.
func OfFleet(f *fleet.Fleet, r schema.GroupVersionResource, holders []string, selector labels.Selector, selected int, pins *Pins) *Fleet {
	return &Fleet{
		fleet: f, resource: r, pins: pins, selector: selector, selected: selected,
		view: fleet.OfResource[*wire.Object](f, r.GroupResource()).In(holders...),
	}
}

// Spans implements [View].
func (f *Fleet) Spans() bool { return true }

// Now implements [View].
func (f *Fleet) Now() *State { return f.state(f.view.Snapshot()) }

// state returns the parts of a snapshot that are selected.
func (f *Fleet) state(s fleet.Snapshot[*wire.Object]) *State {
	state := &State{Version: s.Revision(), snapshot: s}
	for name, objects := range s.States() {
		if Selects(f.selector, name) {
			state.Parts = append(state.Parts, Part{Cluster: name, objects: objects})
		}
	}
	return state
}

// NotOlder implements [View]. A version that another process has issued cannot be compared
// with ours, so it expires. While no selected cluster has synced there is no state: an
// empty list would be wrong, unless the selector selects no cluster at all.
func (f *Fleet) NotOlder(_ context.Context, version uint64) (*State, error) {
	s := f.view.Snapshot()
	for name := range s.Clusters() {
		if !Selects(f.selector, name) && f.selected > 0 {
			continue
		}
		if version == 0 {
			return f.state(s), nil
		}
		if err := f.view.Recognize(version); err != nil {
			return nil, status.Expired(status.VersionExpired, "")
		}
		return f.state(f.view.Snapshot()), nil
	}
	return nil, status.NotReady()
}

// Exact implements [View]. Only the newest state and those of lists that are being paged
// are there.
func (f *Fleet) Exact(ctx context.Context, version uint64) (*State, error) {
	if s, ok := f.pins.find(f.resource, version); ok && f.view.Recognize(version) == nil {
		return f.state(s), nil
	}
	s, err := f.NotOlder(ctx, version)
	if err != nil || s.Version == version {
		return s, err
	}
	return nil, status.Expired(status.VersionExpired, "")
}

// Keep implements [View].
func (f *Fleet) Keep(s *State) { f.pins.keep(f.resource, s.snapshot) }

// missing returns a 503 while a cluster has not been read that may have the object.
func (f *Fleet) missing(r schema.GroupResource, name string) error {
	var unread []*fleet.Member
	for _, m := range f.fleet.Members() {
		feed, ok := m.Feed(r)
		if ok {
			_, err := feed.Now()
			ok = err == nil
		} else {
			ok = m.Discovered()
		}
		if !ok {
			unread = append(unread, m)
		}
	}
	if len(unread) > 0 {
		return Unreachable(unread, fmt.Sprintf("%s %q may be in a cluster that was not read yet", r, name))
	}
	return apierrors.NewNotFound(r, name)
}

func (f *Fleet) list(namespace string) string {
	return namespace + "/" + f.resource.GroupResource().String()
}

func (f *Fleet) start(cluster, key, _ string) string { return cluster + "/" + key + "\x00" }

func (f *Fleet) after(start, _ string) (cluster, key string) {
	cluster, key, _ = strings.Cut(tokenKey(start), "/")
	return cluster, key
}

// selection returns the view of the clusters that are selected, including those that join
// later. If the selector does not name them, it has all clusters, and the caller filters.
func (f *Fleet) selection() *fleet.View[*wire.Object] {
	all := fleet.OfResource[*wire.Object](f.fleet, f.resource.GroupResource())
	if f.selector == nil {
		return all
	}
	requirements, _ := f.selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case operators.Equals, operators.DoubleEquals, operators.In:
			return all.In(slices.DeleteFunc(r.ValuesUnsorted(), func(name string) bool { return !Selects(f.selector, name) })...)
		case operators.DoesNotExist:
			return all.In()
		}
	}
	return all
}

// Unreachable returns the 503 for a request that needs clusters of which nothing is known.
// Its message has the causes, after what, unless that is "". Only while one of the clusters
// is being tried for the first time it has a Retry-After: otherwise kubectl, which requests
// discovery five times, would repeat itself for 50 s.
func Unreachable(members []*fleet.Member, what string) error {
	var causes []string
	soon := false
	for _, m := range members {
		text, err := warning.Shorten(m.Name(), warning.MaxName), m.Status().Err
		if err == nil {
			soon = true
			text += " has not answered yet"
		} else {
			text += " cannot be reached: " + warning.Shorten(firstOf(err).Error(), warning.MaxCause)
		}
		if len(causes) < maxCauses {
			causes = append(causes, "cluster "+text)
		}
	}
	message := strings.Join(causes, "; ")
	if n := len(members) - len(causes); n > 0 {
		message += fmt.Sprintf("; and %d more", n)
	}
	if what != "" {
		message = what + ": " + message
	}
	if soon {
		return status.RetrySoon(message)
	}
	return apierrors.NewServiceUnavailable(message)
}

// maxCauses is how many clusters [Unreachable] names with their causes.
const maxCauses = 3

// firstOf returns the first of several joined errors: those of one cluster mostly repeat
// each other.
func firstOf(err error) error {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok || len(joined.Unwrap()) == 0 {
			return err
		}
		err = joined.Unwrap()[0]
	}
}

// Unread returns the 503 for a resource that has never been read because the cluster
// refuses or fails to send it, nil if it has been or is being read.
func Unread(m *fleet.Member, feed *fleet.Feed) error {
	if _, err := feed.Now(); err == nil {
		return nil
	}
	cause := feed.Connection().Err
	if cause == nil {
		return nil
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s of cluster %s cannot be read: %s",
		feed.Resource().GroupResource(), warning.Shorten(m.Name(), warning.MaxName), warning.Shorten(cause.Error(), warning.MaxCause)))
}
