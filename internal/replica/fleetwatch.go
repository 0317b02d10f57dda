// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

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
}

// streamAll answers with the events of all clusters.
func (q *request) streamAll(opts *internalversion.ListOptions) error {
	m, err := newMatcher(q.server, opts, q.target, q.known.fields)
	if err != nil {
		return err
	}
	v, err := version(opts.ResourceVersion)
	if err != nil {
		return err
	}
	// Which clusters there are may change while the watch goes on.
	view := fleet.OfResource[*wire.Object](q.server.fleet, q.GroupResource())
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if initial && v > 0 {
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
	w := &fleetWatch{stream: s, matcher: m}
	ctx, cancel := context.WithTimeout(q.r.Context(), timeout(opts))
	defer cancel()
	s.deadline, _ = ctx.Deadline()
	return s.run(func() error {
		if initial || v == 0 {
			var state fleet.Snapshot[*wire.Object]
			state, w.follower = view.Follow()
			if initial {
				l := &listing{kind: q.kind, matcher: m, clusters: true, parts: q.allParts(state, token{})}
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

// follow writes what changes until ctx ends.
func (w *fleetWatch) follow(ctx context.Context) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, bookmarkEvery)
		changes, err := w.follower.Next(waiting)
		cancel()
		switch {
		case errors.Is(err, fanout.ErrExpired):
			return expired("too old resource version: clusters have joined or left", "")
		case ctx.Err() != nil:
			return nil
		case err != nil && waiting.Err() == nil:
			return err
		}
		for changes != nil {
			if err := w.write(changes); err != nil {
				return err
			}
			if changes, err = w.follower.TryNext(); err != nil {
				return expired("too old resource version: the client is too slow", "")
			}
		}
		if w.stream.bookmarks {
			if err := w.stream.bookmark(w.follower.Position(), false); err != nil {
				return err
			}
		}
		if err := w.stream.send(); err != nil {
			return err
		}
	}
}

func (w *fleetWatch) write(changes iter.Seq[fleet.Change[*wire.Object]]) error {
	for c := range changes {
		old, now := c.Raw()
		t, o, _ := w.matcher.events(&store.Change[*wire.Object]{Type: c.Type, Old: old, New: now})
		if t == 0 {
			continue
		}
		if err := w.stream.event(t, o, c.Key.Cluster, 0); err != nil {
			return err
		}
	}
	return nil
}
