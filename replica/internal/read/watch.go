// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

const (
	// bookmarkEvery is how often a watch receives a bookmark, if nothing else happens, and bookmarkFirst
	// is when it receives its first one if it began at a version. A client that goes from replica to
	// replica more often than once a minute would otherwise keep a version until nobody has the changes
	// since.
	bookmarkEvery, bookmarkFirst = time.Minute, 5 * time.Second
	// beforeEnd is how long before its end a watch receives a bookmark once more.
	beforeEnd = 2 * time.Second
	// watchLeast is how long a watch lasts at least if its client does not limit it.
	watchLeast = 30 * time.Minute
)

// Programs that watch /fleet must know that a namespace and a name do not identify its
// objects, and declare that with this header or query parameter.
const (
	fleetHeader    = "Watershed-Fleet"
	fleetParameter = "watershedFleet"
	keyedByCluster = "keyed-by-cluster"
)

// watch answers with the events of the objects that the request selects.
func (c *call) watch(opts *internalversion.ListOptions, m *view.Matcher) error {
	version, err := view.ParseVersion(opts.ResourceVersion)
	if err != nil {
		return err
	}
	start := view.Start{Version: version, Initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents}
	ctx, release := respond.Until(c.r.Context(), c.Ends)
	defer release()
	w, err := c.view.Watch(ctx, start, m)
	if err != nil {
		return err
	}
	s, err := c.openStream(opts)
	if err != nil {
		return err
	}
	s.deadline, s.ended = time.Now().Add(timeout(opts)), ctx.Err
	return s.run(c.r.WithContext(ctx), func(ctx context.Context) error {
		end := c.Wait()
		state, err := beginWatch(ctx, w, s.deadline)
		end()
		if err != nil {
			return err
		}
		first := bookmarkFirst
		if state != nil {
			first = bookmarkEvery
			if err := s.initial(c, view.Initial(c.view, state, m), state.Version); err != nil {
				return err
			}
		}
		if c.Started != nil {
			c.Started()
		}
		return s.follow(ctx, w, first)
	})
}

// beginWatch begins a watch. A client may bring a version that the copy has not reached: it
// is waited for until the deadline.
func beginWatch(ctx context.Context, w view.Watch, deadline time.Time) (*view.State, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return w.Begin(ctx)
}

// timeout returns how long a watch lasts. It is random if the client does not limit it, so
// that clients that began together do not all return together.
func timeout(opts *internalversion.ListOptions) time.Duration {
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		return time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	return watchLeast + rand.N(watchLeast)
}

// follow sends the events of a watch until ctx ends or the deadline comes, with bookmarks in
// between, the first one after a time.
func (s *eventStream) follow(ctx context.Context, w view.Watch, first time.Duration) error {
	for every := first; ; every = bookmarkEvery {
		due := s.clock.At(s.nextBookmark(time.Now(), every))
		if err := s.until(ctx, w, due); err != nil {
			return err
		}
		if ctx.Err() != nil || !time.Now().Before(s.deadline) {
			return nil
		}
		if err := s.mark(w); err != nil {
			return err
		}
	}
}

// nextBookmark returns when the watch receives its next bookmark, or ends.
func (s *eventStream) nextBookmark(now time.Time, every time.Duration) time.Time {
	next := now.Add(every)
	end := s.deadline.Add(-beforeEnd)
	switch {
	case next.After(end) && now.Before(end):
		return end
	case next.After(s.deadline):
		return s.deadline
	}
	return next
}

// until sends events until due is closed or, if a bookmark follows every batch, one batch
// of them.
func (s *eventStream) until(ctx context.Context, w view.Watch, due <-chan struct{}) error {
	for {
		some, err := w.Next(ctx, due, s.event)
		if err != nil || ctx.Err() != nil || some && w.Eager() {
			return err
		}
		if len(s.pending) > 0 {
			if err := s.send(); err != nil {
				return err
			}
		}
		select {
		case <-due:
			return nil // even if more events are waiting
		default:
		}
	}
}

// mark sends the events that are waiting and a bookmark with the version that the watch has
// reached, if the client wants bookmarks.
func (s *eventStream) mark(w view.Watch) error {
	if s.bookmarks {
		version, reached, err := w.Mark(s.event)
		if err != nil {
			return err
		}
		if reached {
			if err := s.bookmark(version, false); err != nil {
				return err
			}
		}
	}
	return s.send()
}

// checkKeyed refuses a watch of several clusters by a program that may file objects by
// namespace and name. Tables and the output of kubectl get are not filed. Any other
// program has to declare that it identifies objects by their cluster too.
func (c *call) checkKeyed() error {
	switch {
	case c.media.Shape == respond.Table, prints(c.r, c.Query),
		c.r.Header.Get(fleetHeader) == keyedByCluster, c.Query.Get(fleetParameter) == keyedByCluster:
		return nil
	}
	return apierrors.NewBadRequest("a watch of /fleet has objects of several clusters, which may have the same " +
		"namespace and name, and a cache with such keys would lose some: " +
		"watch /clusters/<name> instead, one cluster at a time; a program that distinguishes objects by the " +
		"annotation " +
		encode.ClusterAnnotation + " sends the header " + fleetHeader + ": " + keyedByCluster +
		" or adds " + fleetParameter + "=" + keyedByCluster + " to the query")
}

// prints reports whether a watch is that of kubectl get -w with an output other than tables.
// It cannot send a header, and does not keep objects. The commands of kubectl that keep
// them, such as wait, request bookmarks.
func prints(r *http.Request, query url.Values) bool {
	return strings.HasPrefix(r.UserAgent(), "kubectl/") &&
		!query.Has("allowWatchBookmarks") && !query.Has("sendInitialEvents")
}
