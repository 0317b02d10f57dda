// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// clusterWatch follows a resource of one cluster for a client.
type clusterWatch struct {
	stream     *eventStream
	feed       *fleet.Feed
	matcher    *matcher
	namespaced bool
	// after is the version that the client has. The copy may not have reached it.
	after  uint64
	cursor *fanout.Cursor[*wire.Object]
}

// prefixOf are the objects of a namespace, or all.
func prefixOf(m *fleet.Moment, namespace string) iter.Seq2[string, *wire.Object] {
	if namespace == "" {
		return m.State.Range("", "")
	}
	return m.State.Range(namespace+"/", "")
}

// follow writes what changes from a state on or, without one, from the client's
// version on. It ends with ctx, and at the stream's deadline.
func (w *clusterWatch) follow(ctx context.Context, from *fleet.Moment) error {
	if err := w.begin(ctx, from); err != nil {
		return err
	}
	next := time.Now().Add(bookmarkEvery)
	end := w.stream.deadline.Add(-beforeEnd)
	for {
		if next.After(end) && time.Now().Before(end) {
			next = end
		}
		if next.After(w.stream.deadline) {
			next = w.stream.deadline
		}
		err := w.until(ctx, next)
		if err != nil || ctx.Err() != nil || !time.Now().Before(w.stream.deadline) {
			return err
		}
		if w.stream.bookmarks {
			if err := w.bookmark(); err != nil {
				return err
			}
		}
		next = time.Now().Add(bookmarkEvery)
	}
}

// begin finds the client's place in the log. A client may bring a version from the API
// server, or from another replica, that the copy has not reached: it has seen all that
// happens until then, so there is nothing to write before.
func (w *clusterWatch) begin(ctx context.Context, from *fleet.Moment) error {
	var revision uint64
	if from != nil {
		revision = from.Revision
	} else {
		var oldest uint64
		var err error
		waiting, cancel := context.WithDeadline(ctx, w.stream.deadline)
		revision, oldest, err = w.feed.Resume(waiting, w.after)
		cancel()
		switch {
		case errors.Is(err, fleet.ErrExpired):
			return expired(fmt.Sprintf("too old resource version: %d (%d)", w.after, oldest), "")
		case err != nil:
			return err
		}
	}
	var err error
	w.cursor, err = w.feed.Cursor(revision, w.matcher.interest(w.namespaced))
	return err
}

// until writes changes until a moment.
func (w *clusterWatch) until(ctx context.Context, moment time.Time) error {
	due := w.stream.server.clock.at(moment)
	for {
		batch, err := w.cursor.NextUntil(ctx, due)
		if err != nil || len(batch) == 0 {
			return w.cause(ctx, err)
		}
		for len(batch) > 0 {
			if err := w.write(batch); err != nil {
				return err
			}
			if batch, err = w.cursor.TryNext(); err != nil {
				return w.cause(ctx, err)
			}
		}
		if len(w.stream.pending) > 0 {
			if err := w.stream.send(); err != nil {
				return err
			}
		}
		select {
		case <-due:
			return nil // however much there is to write
		default:
		}
	}
}

// cause is why there is nothing more to read: nil if it is only the time.
func (w *clusterWatch) cause(waiting context.Context, err error) error {
	switch {
	case errors.Is(err, fanout.ErrExpired):
		return expired("too old resource version: the client is too slow, or the server was restored from a backup", "")
	case waiting.Err() != nil:
		return nil
	}
	return err
}

func (w *clusterWatch) write(batch []store.Change[*wire.Object]) error {
	for i := range batch {
		c := &batch[i]
		if t, o, v := w.matcher.events(c); t != 0 {
			if err := w.stream.event(t, o, "", v); err != nil {
				return err
			}
		}
	}
	return nil
}

// bookmark says how far the copy is, if the client has got everything up to there.
func (w *clusterWatch) bookmark() error {
	now, err := w.feed.Now()
	if err != nil {
		return nil
	}
	batch, err := w.cursor.TryNext()
	if err != nil {
		return w.cause(context.Background(), err)
	}
	if err := w.write(batch); err != nil {
		return err
	}
	if w.cursor.Position() < now.Revision {
		return w.stream.send() // there is more: it is told how far that is
	}
	if err := w.stream.bookmark(now.Version, false); err != nil {
		return err
	}
	return w.stream.send()
}
