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
	// grace is how long a watch may continue after its timeout before it is cancelled.
	grace = 30 * time.Second
	// initialPause is the longest permitted pause in the initial events. If Silence is
	// shorter, Silence is the limit.
	initialPause = 30 * time.Second
	// short is how long a watch without news (see stream) must last at least. A watch that
	// ends sooner counts as failed.
	short = time.Second
)

var (
	// errShort is the error for a watch that the source ended at once.
	errShort = errors.New("watch ended at once, without an event")
	// errVersionUnknown is the error for a deletion whose version could not be read.
	errVersionUnknown = errors.New("its version is not known")
)

// stream is an open watch.
type stream[T any] struct {
	watch Watch[T]
	// waiter is the watch if it is one, otherwise nil.
	waiter Waiter
	quiet  *silence
	// began is when the watch was requested, and opened when the source responded. If there
	// were initial events, both are when these ended.
	began, opened time.Time
	// due is the time at which the source should end the watch.
	due time.Time
	// news counts events that changed the version, other than initial events.
	news int
	// heard means that the source has sent an event or a bookmark.
	heard bool
}

// sound reports whether a watch has worked: it had news, or has lasted some time since the
// source responded. The time before that does not count. If the source sends something that
// cannot be read, it sends that first when the watch is resumed, however slow it is to
// respond.
func (s *stream[T]) sound() bool { return s.news > 0 || time.Since(s.opened) >= short }

// wait waits until an event arrives, if the watch can do that. Next waits otherwise.
func (s *stream[T]) wait() {
	if s.waiter != nil {
		s.quiet.wait()
		s.waiter.Wait()
	}
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

// open begins a watch. The watch fails when it has received nothing for the duration
// silent; 0 means no limit. Until the source has responded, the limit is Options.Silence.
// If cancel is not nil, it cancels ctx, which then ends with the silence.
func (in *intake[T]) open(
	ctx context.Context, cancel context.CancelCauseFunc, opts WatchOptions, silent time.Duration,
) (*stream[T], error) {
	opts.Timeout = in.opts.Timeout + rand.N(in.opts.Timeout)
	if in.continued && !opts.InitialEvents {
		opts.Timeout, opts.NewConnection = catchUpTimeout, in.elsewhere
	}
	now := time.Now()
	due := now.Add(opts.Timeout)
	quiet := listenWith(ctx, cancel, in.opts.Silence, due.Add(grace))
	watch, err := in.source.Watch(quiet.ctx, opts)
	if err != nil {
		defer quiet.stop()
		return nil, quiet.cause(err)
	}
	quiet.within(silent)
	quiet.hold() // until next waits for an event
	in.counters.watches.Add(1)
	in.note(func(s *Status) { s.Watches++ })
	waiter, _ := watch.(Waiter)
	return &stream[T]{watch: watch, waiter: waiter, quiet: quiet, began: now, opened: time.Now(), due: due}, nil
}

// watch opens a watch from the last version. It is the last part of a session, whose context
// it cancels when the source is silent: one context less for each idle watch. Its silence is not limited before the
// first bookmark, because the source may be one that never sends bookmarks.
func (in *intake[T]) watch(ctx context.Context, cancel context.CancelCauseFunc) (*stream[T], error) {
	s, err := in.open(ctx, cancel, WatchOptions{Version: in.version}, 0)
	if err != nil {
		return nil, fmt.Errorf("watch from version %s: %w", in.version, err)
	}
	return s, nil
}

// stream reads the state as initial events, and returns the watch that continues after
// them. If recent is set, it reads the most recent state.
func (in *intake[T]) stream(ctx context.Context, recent bool) (*stream[T], error) {
	s, err := in.open(ctx, nil, WatchOptions{Version: in.from(recent), InitialEvents: true},
		min(initialPause, in.opts.Silence))
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
	s.began, s.opened = time.Now(), time.Now()
	in.note(func(s *Status) { s.Streams = true })
	return s, nil
}

// initial queues the initial events, and completes the relist when they end.
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
		switch {
		case e.Type == delta.Deleted:
			err = in.keep(ctx, relist.Delete(ctx, e.Object))
		case e.Type != delta.Bookmark:
			err = in.add(ctx, relist, e.Object)
		case e.InitialEnd:
			return in.commit(ctx, relist, e.Version)
		default:
			// A server that supports initial events does not send a bookmark before the
			// one that ends them. A server that does not support them would never send
			// that bookmark.
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
		// The event is the deletion of an object whose key is unknown, or the end of the
		// initial events.
		return fmt.Errorf("initial events cannot be read: %w", err)
	}
}

// follow queues the next event. It returns false if the stream is over, and no error if
// the source ended it in good order.
func (in *intake[T]) follow(ctx context.Context, s *stream[T]) (bool, error) {
	e, err := s.next()
	switch {
	case err == nil:
		err = in.apply(ctx, s, e)
	case ReasonOf(err) == Undecodable:
		err = in.unreadable(ctx, s, e, err)
	case errors.Is(s.quiet.cause(nil), errSilent):
		return false, fmt.Errorf("watch: %w", errSilent)
	case !errors.Is(err, io.EOF):
		return false, fmt.Errorf("watch: %w", err)
	case s.news == 0 && time.Since(s.began) < short && time.Now().Before(s.due):
		return false, errShort
	default:
		return false, nil
	}
	return err == nil, err
}

// apply queues one event.
func (in *intake[T]) apply(ctx context.Context, s *stream[T], e Event[T]) error {
	var err error
	in.holds = true
	in.counters.event(e.Type)
	if in.arrived.Load() == 0 && e.Type != delta.Bookmark {
		in.arrived.Store(time.Now().UnixNano())
	}
	switch e.Type {
	case delta.Added:
		err = in.queue.Add(ctx, e.Object)
	case delta.Updated:
		err = in.queue.Update(ctx, e.Object)
	case delta.Deleted:
		in.deletedObject(e.Object)
		err = in.queue.Delete(ctx, e.Object)
	case delta.Bookmark:
		s.quiet.within(in.opts.Silence)
		// The bookmark that reaches the goal makes the copy current: caughtUp queues it, after its check.
		if !in.continued || number(e.Version) < in.goal.Load() {
			err = in.queue.Bookmark(ctx, number(e.Version))
		}
	default:
		err = fmt.Errorf("event of unknown type %d", e.Type)
	}
	if err := in.keep(ctx, err); err != nil {
		return err
	}
	in.reached(s, e.Version)
	if in.continued {
		return in.caughtUp(ctx)
	}
	return nil
}

// reached records the version of an event.
func (in *intake[T]) reached(s *stream[T], version string) {
	s.heard = true
	if newer(version, in.version) {
		s.news++
		in.version = version
	}
	in.heard(in.version)
}

// unreadable handles an event whose object could not be read. The object of a deletion is
// deleted although its final state is unknown. If the key is unknown too, unreadable
// returns an error, which ends the stream, and the next list shows which object was
// deleted. After any other event, the object keeps its last state.
func (in *intake[T]) unreadable(ctx context.Context, s *stream[T], e Event[T], err error) error {
	key, nameless := subject(err)
	switch {
	case e.Type == delta.Added, e.Type == delta.Updated, e.Type == delta.Bookmark, nameless:
		in.drop(err)
	case e.Type == delta.Deleted && key != "":
		in.drop(err)
		in.deleted(key)
		if err := in.queue.DeleteKey(ctx, key, number(e.Version)); err != nil {
			return err
		}
	case e.Version == "":
		return fmt.Errorf("watch: a deletion cannot be read: %w: %w", errVersionUnknown, err)
	default:
		in.reached(s, e.Version)
		return fmt.Errorf("watch: a deletion cannot be read: %w", err)
	}
	in.reached(s, e.Version)
	return nil
}
