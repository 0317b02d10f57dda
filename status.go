// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/reflector"
)

// Status describes an informer in its current run.
type Status struct {
	// Reflector describes the connection to the server: its state, since when the copy
	// is stale, the last error.
	Reflector reflector.Status
	// Synced means that the copy has been complete.
	Synced bool
	// Objects is the number of objects, Version the server's version of the copy.
	Objects int
	Version uint64
	// Queued is the number of changes that were received and are not applied yet, and
	// QueuedBytes their size, with those that are being applied.
	Queued, QueuedBytes int
	// Log is the window of changes kept for readers.
	Log fanout.Stats
	// Undecodable counts the states that could not be decoded when a reader needed
	// them. Each is logged once.
	Undecodable uint64
	// Handlers are sorted by name.
	Handlers []HandlerStatus
}

// String returns the status on one line for humans. The format may change. Times are
// ages.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d objects at version %d", s.Reflector.State, s.Objects, s.Version)
	if !s.Synced {
		b.WriteString(", not synced")
	}
	if stale := s.Reflector.StaleSince; !stale.IsZero() {
		fmt.Fprintf(&b, ", stale for %s", engine.Age(stale))
	}
	for _, n := range []struct {
		count uint64
		what  string
	}{
		{uint64(s.Queued), "queued"},
		{s.Reflector.Failures, "failures"},
		{s.Reflector.Restores, "restores"},
		{s.Reflector.Dropped, "dropped"},
		{s.Undecodable, "undecodable"},
	} {
		if n.count > 0 {
			fmt.Fprintf(&b, ", %d %s", n.count, n.what)
		}
	}
	if s.Reflector.Err != nil {
		fmt.Fprintf(&b, ", last error %s ago: %v", engine.Age(s.Reflector.ErrAt), s.Reflector.Err)
	}
	for _, h := range s.Handlers {
		fmt.Fprintf(&b, "; handler %s", h)
	}
	return b.String()
}

// HandlerStatus describes the progress of a handler.
type HandlerStatus struct {
	Name string
	// Synced means that the handler has received all objects that existed when it
	// joined.
	Synced bool
	// Behind is the number of changes that the handler has not received yet.
	Behind uint64
	// BusySince is when the handler received the changes that it is processing. It is
	// zero while the handler waits.
	BusySince time.Time
	// Delivered counts the calls that returned, Panics those that panicked.
	Delivered, Panics uint64
	// Expired counts how often the handler was so slow that it received differences
	// instead of every change.
	Expired uint64
	// Undecodable counts changes that the handler did not receive because they could not
	// be decoded.
	Undecodable uint64
}

// String returns the status on one line for humans. The format may change.
func (h HandlerStatus) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q: %d behind, %d delivered", h.Name, h.Behind, h.Delivered)
	if !h.Synced {
		b.WriteString(", not synced")
	}
	if !h.BusySince.IsZero() {
		fmt.Fprintf(&b, ", busy for %s", engine.Age(h.BusySince))
	}
	for _, n := range []struct {
		count uint64
		what  string
	}{{h.Panics, "panics"}, {h.Expired, "expired"}, {h.Undecodable, "undecodable"}} {
		if n.count > 0 {
			fmt.Fprintf(&b, ", %d %s", n.count, n.what)
		}
	}
	return b.String()
}

// handler is a part whose status is reported.
type handler interface{ status() HandlerStatus }

// Status returns the informer's status. It can be called at any time.
func (i *Informer[T]) Status() Status { return statusOf(i.engine) }

// Connection returns Status().Reflector. It is cheaper, for frequent calls.
func (i *Informer[T]) Connection() reflector.Status {
	return i.engine.Current().Reflector().Status()
}

// statusOf returns the status of an engine.
func statusOf(e *engine.Engine) (s Status) {
	e.Inspect(func(l *engine.Life, parts iter.Seq[engine.Part]) {
		snap := l.Snapshot()
		s = Status{
			Reflector:   l.Reflector().Status(),
			Objects:     snap.Len(),
			Version:     snap.Version(),
			Log:         l.LogStats(),
			Undecodable: e.Undecodable().Load(),
		}
		s.Queued, s.QueuedBytes = l.Queued()
		select {
		case <-l.Synced():
			s.Synced = true
		default:
		}
		for p := range parts {
			if h, ok := p.(handler); ok {
				s.Handlers = append(s.Handlers, h.status())
			}
		}
	})
	slices.SortFunc(s.Handlers, func(a, b HandlerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// Status returns the handler's status. It can be called at any time.
func (r *Registration) Status() HandlerStatus { return r.status() }

func (r *Registration) status() HandlerStatus {
	d := r.state.Load()
	s := HandlerStatus{
		Name:        r.name,
		Delivered:   r.delivered.Load(),
		Panics:      r.panics.Load(),
		Expired:     r.expired.Load(),
		Undecodable: r.undecodable.Load(),
	}
	select {
	case <-d.synced:
		s.Synced = true
	default:
	}
	if busy := d.busy.Load(); busy != 0 {
		s.BusySince = time.Unix(0, busy)
	}
	if now := d.life.Snapshot().Revision(); now > d.position.Load() {
		s.Behind = now - d.position.Load()
	}
	return s
}
