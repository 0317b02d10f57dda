// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/delta"
)

// Source is where objects come from: one resource of one server. The methods are
// called by one goroutine at a time. Errors that the reflector is to understand
// are, or wrap, an [*Error].
type Source[T any] interface {
	// List reads one page of the list and calls each for every object, as it
	// arrives. If each fails, List stops and returns its error.
	List(ctx context.Context, opts ListOptions, each func(T) error) (Page, error)
	// Watch begins a watch that ends with ctx. Bookmarks are always asked for.
	Watch(ctx context.Context, opts WatchOptions) (Watch[T], error)
	// Served reports whether the server has the resource at all, by discovery if
	// there is such a thing. It is called when a list or a watch was answered
	// [NotServed], and then until it returns true.
	Served(ctx context.Context) (bool, error)
}

// Watch is a stream of events.
type Watch[T any] interface {
	// Next waits for the next event. The end of the stream is [io.EOF] if the
	// server ended it in good order, at its own time. An event that is an error
	// of the server's is returned as an error. After an [*Error] with reason
	// [Undecodable] the stream goes on; after any other error it is over. With an
	// Undecodable come the type and the version of the event, as far as they could
	// be read.
	Next() (Event[T], error)
	// Close ends the stream and makes a Next that waits return.
	Close() error
}

// ListOptions ask for one page.
type ListOptions struct {
	// Version is the resourceVersion: "" for the most recent state, "0" for any,
	// else one that is not older.
	Version string
	// NotOlder says that Version is a lower bound also when there is a Limit,
	// which would make it exact otherwise.
	NotOlder bool
	// Limit is how many objects to send at most, 0 for all.
	Limit int64
	// Continue is the token of the page before; then Version is "".
	Continue string
}

// Page is what came with a page besides the objects.
type Page struct {
	// Version is the list's resourceVersion.
	Version string
	// Continue is the token for the next page, "" if this was the last.
	Continue string
	// Skipped says of each object that could not be read, and is missing, why: an
	// [*Error] with its key, if that is known.
	Skipped []error
}

// WatchOptions ask for a watch.
type WatchOptions struct {
	// Version is the resourceVersion after which events begin or, with
	// InitialEvents, the one that the state must not be older than.
	Version string
	// InitialEvents asks for the whole state first, as Added events and a
	// bookmark at their end.
	InitialEvents bool
	// Timeout is when the server is to end the stream.
	Timeout time.Duration
}

// Event is one event of a watch.
type Event[T any] struct {
	// Type is [delta.Added] for a new object and for one of the initial state,
	// [delta.Updated], [delta.Deleted] or [delta.Bookmark]. A watch has no events of
	// other types.
	Type delta.Type
	// Object is the object's new state, or the final state of a deleted one. A
	// bookmark has none.
	Object T
	// Version is the resourceVersion of the object or the bookmark.
	Version string
	// InitialEnd marks the bookmark after the last of the initial events.
	InitialEnd bool
}
