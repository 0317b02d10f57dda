// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// missedWait is how long a watch waits for the changes that the log does not have.
	missedWait = 10 * time.Second
	// missedReads limits the reads of one cluster that run at once. The others wait.
	missedReads = 64
	// missedKept limits the parts of a cluster whose changes are kept, missedEvents the events of
	// each, and missedAge is how long they are kept.
	missedKept, missedEvents, missedAge = 512, 64, time.Minute
	// missedTries limits how often a watch waits for a read.
	missedTries = 4
)

// errNotWatching means that the copy has lost its API server.
var errNotWatching = errors.New("the copy is not watching")

// Missed reads changes from before the first list of this process, which the log of a resource does
// not have, from the API server of the cluster. With them a watch continues although its version is
// from another replica, or from before a restart. The clients of a replica that has ended all come
// within a second. So clients that watch the same part of a resource share one read, whose result is
// kept for a minute. All methods are safe for concurrent use.
//
// The read is exact. A client at version 105 comes to a replica that has listed the resource at
// version 130. A watch at the API server that begins at 105 returns the changes of the part up to
// 130, of which there are none if the resource is idle, and then a bookmark or a change that shows
// that there are no more. The client receives these changes, and then the log after 130.
type Missed struct {
	// places has an element for each read that runs.
	places chan struct{}

	mu    sync.Mutex
	parts map[missedPart]*missedChanges
}

// NewMissed returns the missed changes of a cluster, of which none have been read.
func NewMissed() *Missed {
	return &Missed{places: make(chan struct{}, missedReads), parts: map[missedPart]*missedChanges{}}
}

// missedPart identifies what a watch selects.
type missedPart struct {
	feed *history.Feed
	fleet.Part
}

// missedChanges are the changes of one part. The mu of Missed guards them.
type missedChanges struct {
	// events are all changes after a version, up to and including until.
	after, until uint64
	events       []Event
	at           time.Time
	// refused is the highest version after which the API server does not have the changes.
	refused uint64
	// reading is closed when the read that runs has ended, nil if none runs. wanted is the lowest
	// version of the watches that wait for it, 0 if there are none.
	reading chan struct{}
	wanted  uint64
}

// read returns the events that a watch has missed after a version. They are complete up to "reached",
// which is "until" or later. It returns false if they are not known.
func (s *Missed) read(
	ctx context.Context, c *Cluster, m *Matcher, after, until uint64,
) (events []Event, reached uint64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, missedWait)
	defer cancel()
	p := missedPart{c.feed, m.part()}
	for range missedTries {
		s.mu.Lock()
		one := s.changesLocked(p)
		switch {
		case one == nil, after <= one.refused:
			s.mu.Unlock()
			return nil, 0, false
		case one.after <= after && until <= one.until:
			defer s.mu.Unlock()
			return since(one.events, after), one.until, true
		case one.reading == nil:
			from := after
			if one.wanted > 0 {
				from = min(after, one.wanted)
			}
			one.reading, one.wanted = make(chan struct{}), 0
			s.mu.Unlock()
			events, ok := s.fetch(ctx, c, p, one, from, until)
			return since(events, after), until, ok
		default:
			if one.wanted == 0 || after < one.wanted {
				one.wanted = after
			}
			reading := one.reading
			s.mu.Unlock()
			select {
			case <-reading:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, 0, false
}

// changesLocked returns the changes of a part, nil if too many parts are being read.
func (s *Missed) changesLocked(p missedPart) *missedChanges {
	if one := s.parts[p]; one != nil {
		return one
	}
	for key, one := range s.parts {
		if one.reading == nil && (len(s.parts) >= missedKept || time.Since(one.at) > missedAge) {
			delete(s.parts, key)
		}
	}
	if len(s.parts) >= missedKept {
		return nil
	}
	one := &missedChanges{at: time.Now()}
	s.parts[p] = one
	return one
}

// fetch reads the changes of a part, and wakes the watches that wait for them.
func (s *Missed) fetch(
	ctx context.Context, c *Cluster, p missedPart, one *missedChanges, from, until uint64,
) (events []Event, ok bool) {
	all, err := s.between(ctx, c, p.Part, from, until)
	for _, e := range all {
		events = append(events, Event{Type: eventTypes[e.Type], Object: e.Object})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(one.reading)
	one.reading = nil
	one.at = time.Now()
	switch {
	case err == nil && len(events) <= missedEvents:
		one.after, one.until, one.events = from, until, events
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		one.refused = max(one.refused, from)
	}
	return events, err == nil
}

// between reads changes from the API server, when there is a place. The copy must be watching
// meanwhile: a restore of etcd ends all watches, so the changes are of the same history as the copy.
func (s *Missed) between(
	ctx context.Context, c *Cluster, p fleet.Part, from, until uint64,
) ([]reflector.Event[*wire.Object], error) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.places }()
	before := c.feed.Connection()
	if before.State != reflector.Watching {
		return nil, errNotWatching
	}
	all, err := c.member.Between(ctx, c.feed.Resource().GroupResource(), p, from, until)
	after := c.feed.Connection()
	if err == nil && (after.State != reflector.Watching || after.Watches != before.Watches) {
		return nil, errNotWatching
	}
	return all, err
}

// eventTypes are the types of changes in the watch protocol.
var eventTypes = map[delta.Type]stream.EventType{
	delta.Added: stream.Added, delta.Updated: stream.Modified, delta.Deleted: stream.Deleted,
}

// since returns the events after a version.
func since(events []Event, version uint64) []Event {
	at := slices.IndexFunc(events, func(e Event) bool { return e.Object.Version() > version })
	if at < 0 {
		return nil
	}
	return events[at:]
}

// part returns what the matcher selects, as a cluster's API expects it.
func (m *Matcher) part() fleet.Part {
	p := fleet.Part{Namespace: m.namespace}
	if m.labels != nil {
		p.LabelSelector = m.labels.String()
	}
	if m.fields != nil {
		p.FieldSelector = m.fields.String()
	}
	return p
}
