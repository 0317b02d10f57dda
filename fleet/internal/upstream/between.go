// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// betweenWatch is how long a watch of [Source.Between] lasts. An API server sends a bookmark
	// two seconds before the end of a watch, so after one second.
	betweenWatch = 3 * time.Second
	// mostBetween limits the events that Between returns.
	mostBetween = 1000
)

// Part is a part of the objects of a resource, in the syntax of requests. The zero value is all of them.
type Part struct{ Namespace, LabelSelector, FieldSelector string }

// Event is a change of an object, or a bookmark.
type Event = reflector.Event[*wire.Object]

// Between reads the changes of a part of the resource after a version, up to and including another
// one, with a watch of its own. It returns when the server has shown that there are no more: by a
// bookmark or an event with that version or a later one. An error means that the changes are not
// known, for example because the server does not have them any more, or because they are more than
// mostBetween.
func (s *Source) Between(ctx context.Context, part Part, after, until uint64) ([]Event, error) {
	query := s.Query()
	if part.Namespace != "" {
		query.Namespace = part.Namespace
	}
	query.LabelSelector = strings.Trim(query.LabelSelector+","+part.LabelSelector, ",")
	query.FieldSelector = part.FieldSelector
	cluster := s.server.Cluster()
	if cluster == nil {
		return nil, errors.New("there is no connection yet")
	}
	source, err := cluster.Source(query)
	if err != nil {
		return nil, err
	}
	b := &between{source: s, json: query.JSON, reached: after, until: until}
	for {
		began := b.reached
		if err := b.read(ctx, source); err != nil {
			return nil, fmt.Errorf("changes of %s after version %d: %w", query, b.reached, err)
		}
		if b.reached >= until {
			return b.events, nil
		}
		// The watch has ended without a bookmark, or the server is behind the copy.
		if b.reached == began {
			if err := timer.Sleep(ctx, betweenWatch/10); err != nil {
				return nil, err
			}
		}
	}
}

// between is a call of [Source.Between].
type between struct {
	source *Source
	json   bool
	// reached is the version up to which events are complete. They are after the version that the
	// call began at, and up to until.
	reached, until uint64
	events         []Event
}

// read watches until the end of the watch, or until the call is complete.
func (b *between) read(ctx context.Context, source *kube.Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var a arrival
	w, err := source.Watch(a.traced(ctx), reflector.WatchOptions{
		Version: strconv.FormatUint(b.reached, 10), Timeout: betweenWatch,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := b.source.server.recognize(ctx, &a); err != nil {
		return err
	}
	for b.reached < b.until {
		e, err := w.Next()
		if errors.Is(err, io.EOF) && ctx.Err() == nil {
			return nil // the events so far are complete up to b.reached
		}
		if err == nil {
			err = b.add(&e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds an event, or the version of a bookmark.
func (b *between) add(e *Event) error {
	version, err := strconv.ParseUint(e.Version, 10, 64)
	switch {
	case err != nil:
		return err
	case version <= b.reached && e.Type != delta.Bookmark:
		return fmt.Errorf("an event has the version %d", version)
	case e.Type == delta.Bookmark, version > b.until:
	case len(b.events) == mostBetween:
		return fmt.Errorf("there are more than %d", mostBetween)
	case !b.json && e.Object.HasUnknownFields():
		return fmt.Errorf("%s has fields that this program does not know", e.Object)
	default:
		b.events = append(b.events, *e)
	}
	b.reached = max(b.reached, version)
	return nil
}
