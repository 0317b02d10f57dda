// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"fmt"
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// fleetWatch is a watch of all clusters. Objects keep the versions that they have in their
// clusters; bookmarks have the version of the fleet, after every batch of events, so that a
// client can resume there.
type fleetWatch struct {
	fleet    *Fleet
	matcher  *Matcher
	start    Start
	follower *fleet.Follower[*wire.Object]
	// term is the one of all versions of the watch.
	term *fleet.Term
}

// Watch implements [View].
func (f *Fleet) Watch(ctx context.Context, start Start, m *Matcher) (Watch, error) {
	w := &fleetWatch{fleet: f, matcher: m, start: start, term: f.Fleet.Term()}
	if err := f.issue(f.view.Changed()); err != nil {
		return nil, err
	}
	if start.Initial {
		if _, err := f.NotOlder(ctx, start.Version); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Begin implements [Watch]. Clusters may join and leave while the watch goes on.
func (w *fleetWatch) Begin(context.Context) (*State, error) {
	view := w.fleet.selected().Concerning(w.matcher.interest())
	var err error
	if !w.start.Initial && w.start.Version != 0 {
		w.follower, err = w.fleet.resume(view, w.start.Version)
		return nil, err
	}
	var snapshot fleet.Snapshot[*wire.Object]
	snapshot, w.follower = view.Follow()
	if !w.start.Initial {
		return nil, nil
	}
	return w.fleet.stateOf(snapshot, func(_ string, objects ranger) bool { return w.fleet.ownsAny(objects) }), nil
}

// resume returns a follower of the changes after a version that a client has. The version
// expires if the caller saw other members then: it would miss their objects.
func (f *Fleet) resume(v *fleet.View[*wire.Object], version uint64) (*fleet.Follower[*wire.Object], error) {
	if f.began > version {
		return nil, status.Expired(status.SetExpired, "")
	}
	follower, err := v.FollowAfter(version, version == f.began)
	if err == nil {
		return follower, nil
	}
	if f.view.Recognize(version) != nil {
		f.exceed(version)
	}
	return nil, status.Expired(fmt.Sprintf("too old resource version: %d", version), "")
}

// Eager implements [Watch].
func (w *fleetWatch) Eager() bool { return true }

// Next implements [Watch].
func (w *fleetWatch) Next(ctx context.Context, due <-chan struct{}, emit func(Event) error) (bool, error) {
	events := emission{emit: emit}
	if running := w.term.Running(); running != nil {
		live, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(running, cancel)()
		ctx = live
	}
	changes, err := w.follower.NextUntil(ctx, due)
	for ; err == nil && changes != nil; changes, err = w.follower.TryNext() {
		if err := w.emit(changes, &events); err != nil {
			return events.some, err
		}
	}
	return events.some, w.cause(ctx, err)
}

// cause returns why there is nothing more to read.
func (w *fleetWatch) cause(ctx context.Context, err error) error {
	if w.term.Ended() {
		return status.Expired(termExpired, "")
	}
	return ended(ctx, err, "too old resource version: the client is too slow, or clusters have joined or left")
}

// emit emits the events for changes.
func (w *fleetWatch) emit(changes iter.Seq[fleet.Change[*wire.Object]], to *emission) error {
	for c := range changes {
		if !Selects(w.fleet.Selector, c.Key.Cluster) {
			continue
		}
		e := w.event(c)
		e.Cluster = c.Key.Cluster
		if err := to.add(e); err != nil {
			return err
		}
	}
	return nil
}

// event returns the event for a change. Objects that a cluster has in another version do
// not exist for the client.
func (w *fleetWatch) event(c fleet.Change[*wire.Object]) Event {
	old, now := c.Raw()
	change := store.Change[*wire.Object]{Type: c.Type, Old: old, New: now, Version: now.Version()}
	switch {
	case w.fleet.owns(now) && old != nil && !w.fleet.owns(old):
		change.Type, change.Old = delta.Added, nil
	case !w.fleet.owns(now) && w.fleet.owns(old):
		change.Type, change.New = delta.Deleted, old
	case !w.fleet.owns(now):
		return Event{}
	}
	return w.matcher.event(&change)
}

// Mark implements [Watch]. If the caller does not see all members, the version is that of
// the last change of those that it sees.
func (w *fleetWatch) Mark(func(Event) error) (uint64, bool, error) {
	position := w.follower.Position()
	version, reached := max(position, w.fleet.began), true
	if w.fleet.Audience.restricted() {
		changed := w.fleet.view.Changed()
		version, reached = max(changed, w.fleet.began), changed <= position
	}
	if !w.term.Allows(version) {
		return 0, false, status.Expired(termExpired, "")
	}
	return version, reached, nil
}

// termExpired is the message of a watch that could not have a version any more.
const termExpired = "too old resource version: this replica has lost its slot of the replica group, or has reached " +
	"the bound of its versions"
