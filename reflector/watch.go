// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/watershed-project/watershed/delta"
)

const (
	// grace is how long a watch may continue after its timeout.
	grace = 30 * time.Second
	// first is how long the initial events may pause, unless Silence is less.
	first = 30 * time.Second
	// short is the duration below which a watch without news counts as failed.
	short = time.Second
)

// stream is an open watch.
type stream[T any] struct {
	watch Watch[T]
	quiet *silence
	began time.Time
	// due is when the source is to end the watch.
	due time.Time
	// news counts initial events and events that changed the version.
	news int
}

// next waits for the next event.
func (s *stream[T]) next() (Event[T], error) {
	s.quiet.wait()
	e, err := s.watch.Next()
	s.quiet.hold()
	return e, err
}

func (s *stream[T]) close() {
	s.quiet.stop()
	_ = s.watch.Close() // the watch is over even if this fails
}

// open begins a watch that fails after a silence of the given length; 0 means never.
func (r *Reflector[T]) open(ctx context.Context, opts WatchOptions, silent time.Duration) (*stream[T], error) {
	opts.Timeout = r.opts.Timeout + rand.N(r.opts.Timeout)
	now := time.Now()
	due := now.Add(opts.Timeout)
	quiet := listen(ctx, r.opts.Silence, due.Add(grace))
	watch, err := r.source.Watch(quiet.ctx, opts)
	if err != nil {
		defer quiet.stop()
		return nil, quiet.cause(err)
	}
	quiet.within(silent)
	quiet.hold() // until next waits for an event
	r.note(func(s *Status) { s.Watches++ })
	return &stream[T]{watch: watch, quiet: quiet, began: now, due: due}, nil
}

// watch opens a watch from the last version. Its silence is not limited until the first
// bookmark, because before that the source may not send any.
func (r *Reflector[T]) watch(ctx context.Context) (*stream[T], error) {
	s, err := r.open(ctx, WatchOptions{Version: r.version}, 0)
	if err != nil {
		return nil, fmt.Errorf("watch from version %s: %w", r.version, err)
	}
	return s, nil
}

// stream reads the state as initial events and returns the watch that continues from
// there.
func (r *Reflector[T]) stream(ctx context.Context, back bool) (*stream[T], error) {
	s, err := r.open(ctx, WatchOptions{Version: r.from(), InitialEvents: true}, min(first, r.opts.Silence))
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	if err := r.initial(ctx, s, back); err != nil {
		err = s.quiet.cause(err)
		s.close()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("stream: %w", err)
	}
	s.quiet.within(r.opts.Silence)
	r.note(func(s *Status) { s.Streams = true })
	return s, nil
}

// initial queues the initial events up to their end.
func (r *Reflector[T]) initial(ctx context.Context, s *stream[T], back bool) error {
	relist, err := r.relist(ctx, back)
	if err != nil {
		return err
	}
	defer relist.Close()
	for {
		e, err := s.next()
		if ReasonOf(err) == Undecodable {
			if err := r.skipInitial(relist, e, err); err != nil {
				return err
			}
			continue
		} else if err != nil {
			return err
		}
		r.heard("")
		s.news++
		switch {
		case e.Type == delta.Deleted:
			err = r.keep(ctx, relist.Delete(ctx, e.Object))
		case e.Type != delta.Bookmark:
			err = r.add(ctx, relist, e.Object)
		case e.InitialEnd:
			return r.commit(ctx, relist, e.Version, back)
		default:
			// A server that supports initial events sends no bookmark before they end.
			// One that does not would never end them.
			err = &Error{Reason: NotSupported, Err: errors.New("the server ignores the request for initial events")}
		}
		if err != nil {
			return err
		}
	}
}

// skipInitial records an initial event that could not be read. It returns an error if the
// state cannot be complete without it.
func (r *Reflector[T]) skipInitial(relist *delta.Relist[T], e Event[T], err error) error {
	key, nameless := subject(err)
	switch {
	case e.Type == delta.Added, e.Type == delta.Updated:
		r.skip(relist, err)
		return nil
	case e.Type == delta.Deleted && (key != "" || nameless):
		r.drop(err)
		relist.Forget(key)
		return nil
	default:
		// This is a deletion of any object, or the end of the initial events.
		return fmt.Errorf("initial events cannot be read: %w", err)
	}
}

// follow queues events until the stream ends. It returns nil if the stream ended in good
// order.
func (r *Reflector[T]) follow(ctx context.Context, s *stream[T]) error {
	for {
		e, err := s.next()
		switch {
		case err == nil:
		case ReasonOf(err) == Undecodable:
			if err := r.unreadable(ctx, s, e, err); err != nil {
				return err
			}
			continue
		case errors.Is(s.quiet.cause(nil), errSilent):
			return fmt.Errorf("watch: %w", errSilent)
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("watch: %w", err)
		case s.news == 0 && time.Since(s.began) < short:
			return errShort
		default:
			return nil
		}
		if err := r.apply(ctx, s, e); err != nil {
			return err
		}
	}
}

// apply queues one event.
func (r *Reflector[T]) apply(ctx context.Context, s *stream[T], e Event[T]) error {
	var err error
	r.holds = true
	switch e.Type {
	case delta.Added:
		err = r.queue.Add(ctx, e.Object)
	case delta.Updated:
		err = r.queue.Update(ctx, e.Object)
	case delta.Deleted:
		err = r.queue.Delete(ctx, e.Object)
	case delta.Bookmark:
		s.quiet.within(r.opts.Silence)
		err = r.queue.Bookmark(ctx, number(e.Version))
	default:
		err = fmt.Errorf("event of unknown type %d", e.Type)
	}
	if err != nil && e.Type == delta.Deleted {
		// If the transform refuses the final state, the deletion is Missed. It needs the
		// same bookmark as in unreadable.
		err = errors.Join(err, r.queue.Bookmark(ctx, number(e.Version)))
	}
	if err := r.keep(ctx, err); err != nil {
		return err
	}
	r.reached(s, e.Version)
	return nil
}

// reached records the version of an event.
func (r *Reflector[T]) reached(s *stream[T], version string) {
	if newer(version, r.version) {
		s.news++
		r.version = version
	}
	r.heard(r.version)
}

// unreadable handles an event whose object could not be read. A deleted object is gone,
// whatever its final state was. If its key is unknown, the error ends the stream, and a
// list determines which object it was. The last state of any other object stays.
func (r *Reflector[T]) unreadable(ctx context.Context, s *stream[T], e Event[T], err error) error {
	key, nameless := subject(err)
	switch {
	case e.Type == delta.Added, e.Type == delta.Updated, e.Type == delta.Bookmark, nameless:
		r.drop(err)
	case e.Type == delta.Deleted && key != "":
		r.drop(err)
		// The consumer attributes Missed deletions to a list, and a bookmark ends a list.
		version := number(e.Version)
		if err := errors.Join(r.queue.DeleteKey(ctx, key, version), r.queue.Bookmark(ctx, version)); err != nil {
			return err
		}
	case e.Version == "":
		return fmt.Errorf("watch: a deletion cannot be read: %w: %w", errSometime, err)
	default:
		r.reached(s, e.Version)
		return fmt.Errorf("watch: a deletion cannot be read: %w", err)
	}
	r.reached(s, e.Version)
	return nil
}
