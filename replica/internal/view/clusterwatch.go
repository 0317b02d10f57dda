// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"errors"
	"fmt"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// clusterWatch is a watch of one cluster.
type clusterWatch struct {
	cluster *Cluster
	matcher *Matcher
	start   Start
	// begins is what the watch begins with, nil afterwards: an idle watch must be small, and must
	// not keep a state.
	begins *beginning
	cursor *fanout.Cursor[*wire.Object]
}

// beginning is what a watch sends before the changes of its cursor: nothing, a state, or events.
type beginning struct {
	// from is the state that Begin returns, nil if the watch begins at a version.
	from *history.Moment
	// missed are events that the copy does not have. The first call of Next sends them.
	missed []Event
}

// Watch implements [View].
func (c *Cluster) Watch(ctx context.Context, start Start, m *Matcher) (Watch, error) {
	w := &clusterWatch{cluster: c, matcher: m, start: start}
	if start.Initial || start.Version == 0 {
		from, err := c.wait(ctx, start.Version)
		w.begins = &beginning{from: from}
		return w, err
	}
	if _, err := c.feed.Now(); err != nil {
		return nil, status.NotReady()
	}
	return w, nil
}

// Begin implements [Watch]. A client may bring a version from the API server, or from
// another replica, that the copy has not reached: it has seen everything until then, so
// there is nothing to send before.
func (w *clusterWatch) Begin(ctx context.Context) (*State, error) {
	var state *State
	var revision, oldest uint64
	var err error
	if w.begins != nil {
		from := w.begins.from
		revision = from.Revision
		if w.start.Initial {
			state = w.cluster.state(from)
		}
		w.begins = nil
	} else if revision, oldest, err = w.resume(ctx); err != nil {
		if errors.Is(err, history.ErrExpired) {
			err = status.Expired(fmt.Sprintf("too old resource version: %d (%d)", w.start.Version, oldest), "")
		}
		return nil, err
	}
	w.cursor, err = w.cluster.feed.Cursor(revision, w.matcher.interest())
	return state, err
}

// resume returns the revision after which the watch continues. If its version is from before the first
// state of the copy, the changes between are read from the API server. Changes that fell into a gap are
// not: a client whose version is inside a gap may have received a part of a list's differences, and a
// selected object that ceased to match inside the gap is in the other part.
func (w *clusterWatch) resume(ctx context.Context) (revision, oldest uint64, err error) {
	c, version := w.cluster, w.start.Version
	revision, oldest, err = c.feed.Resume(ctx, version)
	if !errors.Is(err, history.ErrEarlier) {
		return revision, oldest, err
	}
	events, reached, ok := c.missed.read(ctx, c, w.matcher, version, oldest)
	if !ok {
		return 0, oldest, err
	}
	w.begins = &beginning{missed: events}
	return c.feed.Resume(ctx, reached)
}

// Eager implements [Watch].
func (w *clusterWatch) Eager() bool { return false }

// Next implements [Watch].
func (w *clusterWatch) Next(ctx context.Context, due <-chan struct{}, emit func(Event) error) (bool, error) {
	events := emission{emit: emit}
	if w.begins != nil {
		missed := w.begins.missed
		w.begins = nil
		for _, e := range missed {
			if err := events.add(e); err != nil {
				return events.some, err
			}
		}
		if events.some {
			return true, nil
		}
	}
	batch, err := w.cursor.NextUntil(ctx, due)
	for ; err == nil && len(batch) > 0; batch, err = w.cursor.TryNext() {
		if err := w.emit(batch, &events); err != nil {
			return events.some, err
		}
	}
	return events.some, w.cause(ctx, err)
}

// cause returns why there is nothing more to read.
func (w *clusterWatch) cause(ctx context.Context, err error) error {
	return ended(ctx, err, "too old resource version: the client is too slow, or the server was restored from a backup")
}

// emit emits the events for changes.
func (w *clusterWatch) emit(batch []store.Change[*wire.Object], to *emission) error {
	for i := range batch {
		if err := to.add(w.matcher.event(&batch[i])); err != nil {
			return err
		}
	}
	return nil
}

// Mark implements [Watch].
func (w *clusterWatch) Mark(emit func(Event) error) (uint64, bool, error) {
	now, err := w.cluster.feed.Now()
	if err != nil {
		return 0, false, nil
	}
	batch, err := w.cursor.TryNext()
	if err != nil {
		return 0, false, w.cause(context.Background(), err)
	}
	if err := w.emit(batch, &emission{emit: emit}); err != nil {
		return 0, false, err
	}
	return now.Version, w.cursor.Position() >= now.Revision, nil
}
