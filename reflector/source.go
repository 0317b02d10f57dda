// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/delta"
)

// Source provides the objects of one resource of one server. The methods are called by
// one goroutine at a time. Errors that the reflector is to recognize are, or wrap, an
// [*Error].
type Source[T any] interface {
	// List reads one page of the list and calls each for every object as it arrives. If
	// each fails, List stops and returns its error.
	List(ctx context.Context, opts ListOptions, each func(T) error) (Page, error)
	// Watch begins a watch that ends with ctx. It always requests bookmarks.
	Watch(ctx context.Context, opts WatchOptions) (Watch[T], error)
	// Served reports whether the server has the resource at all, by discovery if the
	// server supports it. It is called after a list or a watch has failed with
	// [NotServed], and then until it returns true.
	Served(ctx context.Context) (bool, error)
}

// Watch is a stream of events.
type Watch[T any] interface {
	// Next waits for the next event. It returns [io.EOF] if the server ended the stream
	// in good order, at its own time. An error event of the server is returned as an
	// error. After an [*Error] with reason [Undecodable] the stream continues; after any
	// other error it is over. An Undecodable comes with the type and the version of the
	// event, as far as they could be read.
	Next() (Event[T], error)
	// Close ends the stream and makes a waiting Next return.
	Close() error
}

// Waiter is implemented by a [Watch] that takes less memory while it is idle if Wait is
// called before Next. Wait returns when the next event has begun to arrive, or the watch has
// ended; a wait that ends too early is harmless. Close makes it return. A goroutine's stack
// shrinks only to the fourfold of what it uses, and a process may have a goroutine for each
// of many thousand watches: Run calls Wait with less than 300 bytes of stack.
type Waiter interface{ Wait() }

// ListOptions select one page of a list.
type ListOptions struct {
	// Version is the resourceVersion: "" for the most recent state, "0" for any,
	// otherwise the one that the list must not be older than.
	Version string
	// NotOlder makes Version a lower bound even with a Limit, which would otherwise make
	// it exact.
	NotOlder bool
	// Limit is the maximum number of objects to return, 0 for all.
	Limit int64
	// Continue is the token from the previous page; Version is then "".
	Continue string
}

// Page has the metadata of a page.
type Page struct {
	// Version is the list's resourceVersion.
	Version string
	// Continue is the token for the next page, "" if this was the last.
	Continue string
	// Skipped has an error for each object that is missing because it could not be read:
	// an [*Error] with its key, if that is known.
	Skipped []error
}

// WatchOptions select the events of a watch.
type WatchOptions struct {
	// Version is the resourceVersion after which events begin or, with InitialEvents, the
	// one that the state must not be older than.
	Version string
	// InitialEvents requests the whole state first, as Added events followed by a
	// bookmark.
	InitialEvents bool
	// Nothing selects no objects: with InitialEvents, the bookmark has the current version
	// of the server, which need not send its state.
	Nothing bool
	// NewConnection requests a connection that other requests do not use. Another server
	// may respond there.
	NewConnection bool
	// Timeout is how long the stream may last before the server is to end it.
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
