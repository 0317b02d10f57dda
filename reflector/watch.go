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

var (
	// errShort is the error for a watch that the source ended at once.
	errShort = errors.New("watch ended at once, without an event")
	// errSometime is the error for a deletion whose version could not be read.
	errSometime = errors.New("its version is not known")
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
func (in *intake[T]) open(ctx context.Context, opts WatchOptions, silent time.Duration) (*stream[T], error) {
	opts.Timeout = in.opts.Timeout + rand.N(in.opts.Timeout)
	now := time.Now()
	due := now.Add(opts.Timeout)
	quiet := listen(ctx, in.opts.Silence, due.Add(grace))
	watch, err := in.source.Watch(quiet.ctx, opts)
	if err != nil {
		defer quiet.stop()
		return nil, quiet.cause(err)
	}
	quiet.within(silent)
	quiet.hold() // until next waits for an event
	in.note(func(s *Status) { s.Watches++ })
	return &stream[T]{watch: watch, quiet: quiet, began: now, due: due}, nil
}

// watch opens a watch from the last version. Its silence is not limited until the first
// bookmark, because before that the source may not send any.
func (in *intake[T]) watch(ctx context.Context) (*stream[T], error) {
	s, err := in.open(ctx, WatchOptions{Version: in.version}, 0)
	if err != nil {
		return nil, fmt.Errorf("watch from version %s: %w", in.version, err)
	}
	return s, nil
}

// stream reads the state as initial events, with recent the most recent one, and returns
// the watch that continues from there.
func (in *intake[T]) stream(ctx context.Context, recent bool) (*stream[T], error) {
	s, err := in.open(ctx, WatchOptions{Version: in.from(recent), InitialEvents: true}, min(first, in.opts.Silence))
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	if err := in.initial(ctx, s); err != nil {
		err = s.quiet.cause(err)
		s.close()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("stream: %w", err)
	}
	s.quiet.within(in.opts.Silence)
	in.note(func(s *Status) { s.Streams = true })
	return s, nil
}

// initial queues the initial events up to their end.
func (in *intake[T]) initial(ctx context.Context, s *stream[T]) error {
	relist, err := in.relist(ctx)
	if err != nil {
		return err
	}
	defer relist.Close()
	for {
		e, err := s.next()
		if ReasonOf(err) == Undecodable {
			if err := in.skipInitial(relist, e, err); err != nil {
				return err
			}
			continue
		} else if err != nil {
			return err
		}
		in.heard("")
		s.news++
		switch {
		case e.Type == delta.Deleted:
			err = in.keep(ctx, relist.Delete(ctx, e.Object))
		case e.Type != delta.Bookmark:
			err = in.add(ctx, relist, e.Object)
		case e.InitialEnd:
			return in.commit(ctx, relist, e.Version)
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
func (in *intake[T]) skipInitial(relist *delta.Relist[T], e Event[T], err error) error {
	key, nameless := subject(err)
	switch {
	case e.Type == delta.Added, e.Type == delta.Updated:
		in.skip(relist, err)
		return nil
	case e.Type == delta.Deleted && (key != "" || nameless):
		in.drop(err)
		relist.Forget(key)
		return nil
	default:
		// This is a deletion of any object, or the end of the initial events.
		return fmt.Errorf("initial events cannot be read: %w", err)
	}
}

// follow queues events until the stream ends. It returns nil if the stream ended in good
// order.
func (in *intake[T]) follow(ctx context.Context, s *stream[T]) error {
	for {
		e, err := s.next()
		switch {
		case err == nil:
		case ReasonOf(err) == Undecodable:
			if err := in.unreadable(ctx, s, e, err); err != nil {
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
		if err := in.apply(ctx, s, e); err != nil {
			return err
		}
	}
}

// apply queues one event.
func (in *intake[T]) apply(ctx context.Context, s *stream[T], e Event[T]) error {
	var err error
	in.holds = true
	switch e.Type {
	case delta.Added:
		err = in.queue.Add(ctx, e.Object)
	case delta.Updated:
		err = in.queue.Update(ctx, e.Object)
	case delta.Deleted:
		err = in.queue.Delete(ctx, e.Object)
	case delta.Bookmark:
		s.quiet.within(in.opts.Silence)
		err = in.queue.Bookmark(ctx, number(e.Version))
	default:
		err = fmt.Errorf("event of unknown type %d", e.Type)
	}
	if err != nil && e.Type == delta.Deleted {
		// If the transform refuses the final state, the deletion is Missed. It needs the
		// same bookmark as in unreadable.
		err = errors.Join(err, in.queue.Bookmark(ctx, number(e.Version)))
	}
	if err := in.keep(ctx, err); err != nil {
		return err
	}
	in.reached(s, e.Version)
	return nil
}

// reached records the version of an event.
func (in *intake[T]) reached(s *stream[T], version string) {
	if newer(version, in.version) {
		s.news++
		in.version = version
	}
	in.heard(in.version)
}

// unreadable handles an event whose object could not be read. A deleted object is gone,
// whatever its final state was. If its key is unknown, the error ends the stream, and a
// list determines which object it was. The last state of any other object stays.
func (in *intake[T]) unreadable(ctx context.Context, s *stream[T], e Event[T], err error) error {
	key, nameless := subject(err)
	switch {
	case e.Type == delta.Added, e.Type == delta.Updated, e.Type == delta.Bookmark, nameless:
		in.drop(err)
	case e.Type == delta.Deleted && key != "":
		in.drop(err)
		// The consumer attributes Missed deletions to a list, and a bookmark ends a list.
		version := number(e.Version)
		if err := errors.Join(in.queue.DeleteKey(ctx, key, version), in.queue.Bookmark(ctx, version)); err != nil {
			return err
		}
	case e.Version == "":
		return fmt.Errorf("watch: a deletion cannot be read: %w: %w", errSometime, err)
	default:
		in.reached(s, e.Version)
		return fmt.Errorf("watch: a deletion cannot be read: %w", err)
	}
	in.reached(s, e.Version)
	return nil
}
