// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// fleetWatch follows a resource of all clusters for a client. Objects keep the versions
// that they have in their clusters; the fleet's version is told by bookmarks, after
// every batch of events, so that a client can go on from there.
type fleetWatch struct {
	stream   *eventStream
	matcher  *matcher
	follower *fleet.Follower[*wire.Object]
	// version is that of the resource. Clusters may have it in another.
	version string
	// selects reports whether the client wants the objects of a cluster.
	selects func(cluster string) bool
}

// streamAll answers with the events of all clusters.
func (q *request) streamAll(opts *internalversion.ListOptions) error {
	if err := q.ofCopy(); err != nil {
		return err
	}
	if err := q.keyed(); err != nil {
		return err
	}
	m, err := newMatcher(q.server, opts, q.target, q.known.fields)
	if err != nil {
		return err
	}
	v, err := version(opts.ResourceVersion)
	if err != nil {
		return err
	}
	// Which clusters there are may change while the watch goes on.
	view := q.all.selected(fleet.OfResource[*wire.Object](q.server.fleet, q.GroupResource())).Concerning(m.interest(true))
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if initial {
		if _, err := q.notOlder(v); err != nil {
			return err
		}
	}
	s, err := q.openStream(opts)
	if err != nil {
		return err
	}
	if s.rows != nil {
		s.rows.clusters = true
	}
	w := &fleetWatch{stream: s, matcher: m, version: q.Version, selects: q.all.selects}
	ctx, cancel := context.WithTimeout(q.r.Context(), timeout(opts))
	defer cancel()
	s.deadline, _ = ctx.Deadline()
	return s.run(func() error {
		if initial || v == 0 {
			var state fleet.Snapshot[*wire.Object]
			state, w.follower = view.Follow()
			if initial {
				l := &listing{kind: q.kind, matcher: m, clusters: true, parts: w.own(q.allParts(state, token{}))}
				if err := s.initial(l, state.Revision()); err != nil {
					return err
				}
			}
		} else if w.follower, err = view.FollowAfter(v); err != nil {
			return expired(fmt.Sprintf("too old resource version: %d", v), "")
		}
		return w.follow(ctx)
	})
}

// own leaves the parts of clusters that have the resource in the version of the watch.
func (w *fleetWatch) own(parts []listPart) []listPart {
	return slices.DeleteFunc(parts, func(p listPart) bool {
		for _, o := range p.objects {
			return !w.owns(o)
		}
		return true
	})
}

func (w *fleetWatch) owns(o *wire.Object) bool {
	return o != nil && o.GroupVersionKind().Version == w.version
}

// follow writes what changes until ctx ends. What does not concern the client moves the
// version too: of that it is told now and then.
func (w *fleetWatch) follow(ctx context.Context) error {
	next := time.Now().Add(bookmarkEvery)
	for {
		waiting, cancel := context.WithDeadline(ctx, next)
		changes, err := w.follower.Next(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return tooSlow(err)
		}
		told := false
		for changes != nil {
			some, err := w.write(changes)
			if err != nil {
				return err
			}
			told = told || some
			if changes, err = w.follower.TryNext(); err != nil {
				return tooSlow(err)
			}
		}
		if !told && time.Now().Before(next) {
			continue
		}
		if w.stream.bookmarks {
			if err := w.stream.bookmark(w.follower.Position(), false); err != nil {
				return err
			}
		}
		if err := w.stream.send(); err != nil {
			return err
		}
		next = time.Now().Add(bookmarkEvery)
	}
}

// tooSlow is why a watch ends that the log does not reach back for.
func tooSlow(err error) error {
	if errors.Is(err, fanout.ErrExpired) {
		return expired("too old resource version: the client is too slow, or clusters have joined or left", "")
	}
	return err
}

// write writes changes, and reports whether any of them concerns the client.
func (w *fleetWatch) write(changes iter.Seq[fleet.Change[*wire.Object]]) (told bool, err error) {
	for c := range changes {
		if !w.selects(c.Key.Cluster) {
			continue
		}
		t, o, v := w.event(c)
		if t == 0 {
			continue
		}
		told = true
		if err := w.stream.event(t, o, c.Key.Cluster, v); err != nil {
			return told, err
		}
	}
	return told, nil
}

// event is what the client is told of a change, see [matcher.events]. What a cluster has
// in another version is not there for it.
func (w *fleetWatch) event(c fleet.Change[*wire.Object]) (wire.EventType, *wire.Object, uint64) {
	old, now := c.Raw()
	change := store.Change[*wire.Object]{Type: c.Type, Old: old, New: now, Version: now.Version()}
	switch {
	case w.owns(now) && old != nil && !w.owns(old):
		change.Type, change.Old = delta.Added, nil
	case !w.owns(now) && w.owns(old):
		change.Type, change.New = delta.Deleted, old
	case !w.owns(now):
		return 0, nil, 0
	}
	return w.matcher.events(&change)
}
