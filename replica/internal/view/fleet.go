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
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/wire"
)

// Fleet is a resource of the clusters that a caller sees and that have it in one version,
// with versions of its own. Objects keep the versions that they have in their clusters.
type Fleet struct {
	Selection
	pins *Pins
	// view has the clusters that the caller sees.
	view *fleet.View[*wire.Object]
	// began is the version at which the caller began to see these clusters.
	began uint64
}

// Selection is what a request reads of the fleet.
type Selection struct {
	Fleet    *fleet.Fleet
	Resource schema.GroupVersionResource
	// Audience is nil without access control, unless the clusters are selected by labels.
	Audience *Audience
	// Labelled means that the audience has only those clusters that the request selects by
	// their labels, which may be none.
	Labelled bool
	// Members are the members that the caller sees. Those that are not in its audience
	// cannot be read yet.
	Members []*fleet.Member
	// Holders are the names of the members that have the resource in the version, sorted.
	Holders []string
	// Selector is what the request requires of the names of clusters, nil if nothing, and
	// Selected is how many of the holders it selects.
	Selector labels.Selector
	Selected int
}

// OfFleet returns the view of a selection. States for the next pages of lists are kept in
// pins.
func OfFleet(s Selection, pins *Pins) *Fleet {
	f := &Fleet{Selection: s, pins: pins, view: fleet.OfResource[*wire.Object](s.Fleet, s.Resource.GroupResource())}
	if s.Audience.restricted() {
		f.view = f.view.In(s.Audience.Names...)
	}
	f.began = s.Audience.began(f.view.Reserve)
	return f
}

// Spans implements [View].
func (f *Fleet) Spans() bool { return true }

// Now implements [View].
func (f *Fleet) Now() *State { return f.state(f.view.Snapshot()) }

// state returns the parts of a snapshot that are selected and that holders have.
func (f *Fleet) state(s fleet.Snapshot[*wire.Object]) *State {
	return f.stateOf(s, func(name string, _ ranger) bool { return f.holds(name) })
}

// stateOf returns the parts of a snapshot that are selected and that a function keeps.
func (f *Fleet) stateOf(s fleet.Snapshot[*wire.Object], keep func(name string, objects ranger) bool) *State {
	state := &State{Version: f.version(s), snapshot: s}
	for name, objects := range s.States() {
		if Selects(f.Selector, name) && keep(name, objects) {
			state.Parts = append(state.Parts, Part{Cluster: name, objects: objects})
		}
	}
	return state
}

// version returns the version of a snapshot for the client. If the caller does not see all
// members it does not depend on those that it does not see.
func (f *Fleet) version(s fleet.Snapshot[*wire.Object]) uint64 {
	if f.Audience.restricted() {
		return max(s.Changed(), f.began)
	}
	return max(s.Revision(), f.began)
}

// holds reports whether a cluster of a snapshot has the resource in the version. It may have
// joined after the holders were determined: then it counts too, because the version of the
// snapshot includes that.
func (f *Fleet) holds(cluster string) bool {
	if _, ok := slices.BinarySearch(f.Holders, cluster); ok {
		return true
	}
	i := slices.IndexFunc(f.Members, func(m *fleet.Member) bool { return m.Name() == cluster })
	var m *fleet.Member
	switch {
	case i >= 0:
		m = f.Members[i]
	case !f.Audience.restricted():
		m, _ = f.Fleet.Member(cluster)
	}
	if m == nil || !m.Discovered() {
		return false
	}
	feed, ok := m.Feed(f.Resource.GroupResource())
	return ok && feed.Resource().Version == f.Resource.Version
}

// ownsAny reports whether objects have the version of the resource, judged by the first.
func (f *Fleet) ownsAny(objects ranger) bool {
	for _, o := range objects.Range("", "") {
		return f.owns(o)
	}
	return false
}

// owns reports whether an object has the version of the resource. A cluster may have
// another.
func (f *Fleet) owns(o *wire.Object) bool {
	return o != nil && o.GroupVersionKind().Version == f.Resource.Version
}

// NotOlder implements [View]. A version that another process has issued cannot be compared
// with ours, so it expires. While no selected cluster has synced there is no state: an
// empty list would be wrong, unless the selector selects no cluster at all.
func (f *Fleet) NotOlder(_ context.Context, version uint64) (*State, error) {
	s := f.view.Snapshot()
	if !f.hasState(s) {
		return nil, status.NotReady()
	}
	if version == 0 {
		return f.state(s), nil
	}
	if err := f.view.Recognize(version); err != nil {
		f.exceed(version)
		return nil, status.Expired(status.VersionExpired, "")
	}
	return f.state(f.view.Snapshot()), nil
}

// issue implements [View]. In a replica group, a version is shown only within the present term.
func (f *Fleet) issue(version uint64) error {
	switch t := f.Fleet.Term(); {
	case t.Allows(version):
		return nil
	case t.Ended():
		return status.RetrySoon("this replica has no slot of its replica group, so it cannot issue versions of /fleet")
	}
	return status.RetrySoon("the versions of /fleet have reached the bound in the Lease of this replica, which must " +
		"be renewed first")
}

// hasState reports whether a snapshot has a cluster that is selected, or none can be.
func (f *Fleet) hasState(s fleet.Snapshot[*wire.Object]) bool {
	if f.Labelled && len(f.Audience.Names) == 0 {
		return true
	}
	for name := range s.Clusters() {
		if f.holds(name) && (Selects(f.Selector, name) || f.Selected == 0) {
			return true
		}
	}
	return false
}

// Exact implements [View]. Only the newest state and those of lists that are being paged
// are there.
func (f *Fleet) Exact(ctx context.Context, version uint64) (*State, error) {
	if s, ok := f.pins.find(f.pinKey(version)); ok && version >= f.began && f.view.Recognize(version) == nil {
		if f.lacks(s) {
			return nil, status.Expired(status.VersionExpired, "")
		}
		return f.state(s), nil
	}
	s, err := f.NotOlder(ctx, version)
	switch {
	case err != nil || s.Version == version:
		return s, err
	case version < f.began:
		return nil, status.Expired(status.SetExpired, "")
	}
	return nil, status.Expired(status.VersionExpired, "")
}

// lacks reports whether a selected cluster of a snapshot has left since, or has another version
// of the resource now. The rest of a list would then omit its objects silently.
func (f *Fleet) lacks(s fleet.Snapshot[*wire.Object]) bool {
	for name, objects := range s.States() {
		if Selects(f.Selector, name) && !f.holds(name) && f.ownsAny(objects) {
			return true
		}
	}
	return false
}

// exceed makes the next version of the caller greater than one that another process has
// issued, so that a client does not see versions decrease.
func (f *Fleet) exceed(version uint64) {
	if f.Audience != nil && version > f.version(f.view.Snapshot()) {
		f.began = f.Audience.restart(f.view.Reserve)
	}
}

// Keep implements [View].
func (f *Fleet) Keep(s *State) { f.pins.keep(f.pinKey(s.Version), s.snapshot) }

// pinKey returns the key of a state that is kept.
func (f *Fleet) pinKey(version uint64) pinKey {
	key := pinKey{resource: f.Resource, version: version}
	if f.Audience.restricted() {
		key.set = f.Audience.Set
	}
	return key
}

// missing returns a 503 while a cluster has not been read that may have the object.
func (f *Fleet) missing(r schema.GroupResource, name string) error {
	var unread []*fleet.Member
	for _, m := range f.Members {
		feed, ok := m.Feed(r)
		switch {
		case !f.Audience.has(m.Name()):
			ok = false
		case ok:
			_, err := feed.Now()
			ok = err == nil
		default:
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
	return namespace + "/" + f.Resource.GroupResource().String()
}

func (f *Fleet) start(cluster, key, _ string) string { return cluster + "/" + key + "\x00" }

func (f *Fleet) after(start, _ string) (cluster, key string) {
	cluster, key, _ = strings.Cut(tokenKey(start), "/")
	return cluster, key
}

// selected returns the view of the clusters that are selected, including those that join
// later. If the selector does not name them, it has all clusters, and the caller filters. If
// the caller does not see all members, the versions are those of all that it sees.
func (f *Fleet) selected() *fleet.View[*wire.Object] {
	all := f.view
	if f.Selector == nil || f.Audience.restricted() {
		return all
	}
	requirements, _ := f.Selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case operators.Equals, operators.DoubleEquals, operators.In:
			return all.In(slices.DeleteFunc(r.ValuesUnsorted(), func(name string) bool {
				return !Selects(f.Selector, name)
			})...)
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
func Unread(m *fleet.Member, feed *history.Feed) error {
	if _, err := feed.Now(); err == nil {
		return nil
	}
	cause := feed.Connection().Err
	if cause == nil {
		return nil
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s of cluster %s cannot be read: %s",
		feed.Resource().GroupResource(), warning.Shorten(m.Name(), warning.MaxName),
		warning.Shorten(cause.Error(), warning.MaxCause)))
}
