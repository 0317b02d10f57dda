// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"errors"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/wire"
)

// Start is where a watch begins.
type Start struct {
	// Version is the version that the client has, 0 for the newest state.
	Version uint64
	// Initial means that the client wants a state first, which is not older than Version.
	Initial bool
}

// Watch yields the events of a resource for one client. It is not safe for concurrent use.
type Watch interface {
	// Begin finds the place of the client in the history. It returns the state whose
	// objects are the initial events, nil if the client does not want them. An error is
	// sent as an event.
	Begin(ctx context.Context) (*State, error)
	// Next waits for changes and calls emit for each event, until there are no more. It
	// reports whether there was an event. It returns early when due is closed.
	Next(ctx context.Context, due <-chan struct{}, emit func(Event) error) (bool, error)
	// Mark returns the version for a bookmark, after calling emit for events before it. It
	// reports false if more events are waiting.
	Mark(emit func(Event) error) (uint64, bool, error)
	// Eager reports whether a bookmark follows every batch of events: the events alone do
	// not have the version of the view.
	Eager() bool
}

// Event is an event of a watch.
type Event struct {
	// Type is 0 for a change that does not concern the client, and [stream.Error] if that is
	// not known because Object cannot be decoded.
	Type   stream.EventType
	Object *wire.Object
	// Cluster is the cluster of the object, "" in a view of one cluster.
	Cluster string
	// Version replaces the version of the object, unless it is 0.
	Version uint64
}

// emission passes events to emit, and records whether there were any.
type emission struct {
	emit func(Event) error
	some bool
}

// add passes on an event that concerns the client.
func (m *emission) add(e Event) error {
	if e.Type == 0 {
		return nil
	}
	m.some = true
	return m.emit(e)
}

// ended returns why a watch ends: nil if only its time is over.
func ended(ctx context.Context, err error, message string) error {
	switch {
	case errors.Is(err, fanout.ErrExpired):
		return status.Expired(message, "")
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return err
}
