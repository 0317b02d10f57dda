// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/timer"
)

// ErrRunning is returned by a second Run before the first has returned.
var ErrRunning = errors.New("running already")

// fruitless is how many watches in a row may fail without being sound (see stream) before
// the state is read again: the stream may contain something that cannot be read.
const fruitless = 3

// catchUpWatches is how many watches may end before a continued copy is current. The state
// is read then.
const catchUpWatches = 3

// Reflector keeps a queue in step with a source. Create it with [New].
type Reflector[T any] struct {
	intake  intake[T]
	running atomic.Bool
	request request

	// Only Run uses the fields below. plan is the next step.
	plan    plan
	backoff backoff
	// streams means that the state is requested as a stream.
	streams bool
	// barren counts watches that failed since the last sound one. sound is set if the last
	// step was the end of a sound watch.
	barren int
	sound  bool
}

// plan is the next step of the reflector.
type plan struct {
	// list means to read the whole state: with recent the most recent one, otherwise any
	// that is not older than version.
	list, recent bool
	// pages means to list the state this time, even if the source can stream it.
	pages bool
	// check means to check whether the source has gone back before watching on.
	check bool
	// aim means to request the version that the copy has to reach before watching on.
	aim bool
	// cause is why the state is to be read.
	cause Cause
}

// New returns a reflector from source into queue. A nil opts means the defaults. It
// panics if source or queue is nil.
func New[T any](source Source[T], queue *delta.FIFO[T], opts *Options) *Reflector[T] {
	if source == nil || queue == nil {
		panic("reflector.New: nil source or queue")
	}
	o := opts.withDefaults()
	return &Reflector[T]{
		intake: intake[T]{
			recorder: recorder{logger: o.Logger, counters: o.Counters}, source: source, queue: queue, opts: o,
		},
	}
}

// Status returns the current status. It can be called at any time.
func (r *Reflector[T]) Status() Status { return r.intake.current() }

// Continue makes the next Run follow the changes since a version, instead of reading the
// whole state: the consumer has the state of that version, from an earlier run. At is when
// that state was current. Continue must not be called during Run.
//
// The copy is current when it has reached the version that the source had when Run began,
// [Reflector.Goal]. Run then queues a bookmark with that version or a later one. If the
// source no longer has the changes, Run reads the state, once it has tried another
// connection: another server may still have them.
//
// Newest are the objects of the state with the highest versions. If the source is a [Getter],
// Run compares up to [ComparedObjects] of them with the source first, usually one. If they show that the
// source has another history, because it was restored from a backup, Run reads the state, and
// accepts older objects, as after any restore.
//
// A restore is not found if the source has advanced beyond the version and the compared objects
// show nothing: their versions are older than the backup, or all of them were written again after
// version.
func (r *Reflector[T]) Continue(version uint64, at time.Time, newest ...StoredObject) {
	r.intake.continued, r.intake.holds = true, true
	r.intake.stored = newComparison(newest, version)
	r.intake.version = fmt.Sprint(version)
	r.intake.note(func(s *Status) {
		s.Version, s.StaleSince = r.intake.version, at
	})
}

// Goal returns the version that a continued copy must reach to be current, 0 while it is
// not known.
func (r *Reflector[T]) Goal() uint64 { return r.intake.goal.Load() }

// Arrived returns when the first watch event arrived since the last call, the zero time if
// there was none. It is for the consumer of the queue, to measure how long events wait. An
// event that arrives during a call may be left out.
func (r *Reflector[T]) Arrived() time.Time {
	if at := r.intake.arrived.Swap(0); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Run keeps the queue in step until ctx ends or the queue is closed, and then returns
// nil. It may be called again afterwards. It then begins with a list that is not older
// than what was seen before. See also [Reflector.Continue].
func (r *Reflector[T]) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return fmt.Errorf("reflector: %w", ErrRunning)
	}
	forget := r.begin()
	x := session[T]{Reflector: r, parent: ctx}
	for x.advance() {
		x.stream.wait()
	}
	r.end(forget)
	return nil
}

// begin begins a run. The caller passes forget to end.
func (r *Reflector[T]) begin() (forget func()) {
	r.plan, r.barren = plan{list: true, cause: Begun}, 0
	if r.intake.continued {
		r.plan = plan{aim: true}
		r.intake.enter(Resuming)
	}
	r.backoff = backoff{first: r.intake.opts.Backoff, most: r.intake.opts.MaxBackoff}
	r.streams = !r.intake.opts.ListOnly
	r.request.reopen()
	return r.intake.queue.AfterClose(r.request.close)
}

// end ends a run.
func (r *Reflector[T]) end(forget func()) {
	forget()
	r.intake.enter(Idle)
	r.running.Store(false)
}

// session executes a plan and follows the resulting watch.
type session[T any] struct {
	*Reflector[T]
	// parent is the context of Run.
	parent context.Context
	// ctx and stream are nil between two sessions.
	ctx    context.Context
	stream *stream[T]
}

// advance does the work of Run up to the next wait for an event of a watch. It returns
// false if Run is over.
func (s *session[T]) advance() bool {
	for {
		following, err := s.step()
		if following {
			return true
		}
		if s.parent.Err() != nil || s.request.isClosed() || errors.Is(err, delta.ErrClosed) {
			return false
		}
		if s.request.pending() {
			continue // the list that was requested comes next, whatever the error was
		}
		ctx, _ := s.request.begin(s.parent, false)
		err = s.recover(ctx, err)
		s.request.end()
		if err != nil {
			return false // the context has ended
		}
	}
}

// step begins a session, or queues the next event of its watch. It returns false if the
// session is over, and no error if the watch ended in good order.
func (s *session[T]) step() (following bool, err error) {
	s.sound = false
	if s.stream == nil {
		err = s.connect()
		if err == nil {
			return true, nil
		}
	} else {
		following, err = s.intake.follow(s.ctx, s.stream)
		if following {
			return true, nil
		}
		if s.sound = err == nil || s.stream.sound(); s.sound {
			s.barren = 0
			s.backoff.reset()
		}
		if err == nil {
			s.giveUpCatchingUp(s.stream.news)
		}
		// If the stream ended early, the next server may be a different one. If it was
		// silent, the server may have gone back just before it, and would be silent again.
		s.resume(time.Now().Before(s.stream.due) || !s.stream.heard)
		s.stream.close()
	}
	s.request.end()
	s.ctx, s.stream = nil, nil
	return false, err
}

// connect begins a session.
func (s *session[T]) connect() (err error) {
	var cancel context.CancelCauseFunc
	s.ctx, cancel = s.request.begin(s.parent, true)
	if requested, back := s.request.take(); requested {
		s.obey(back)
	}
	if s.stream, err = s.open(s.ctx, cancel); err != nil {
		return err
	}
	if !s.intake.continued {
		s.intake.enter(Watching)
	}
	s.plan = plan{}
	return nil
}

// resume plans to watch on from the last version, after a check if the server may be a
// different one. Without a version there is nothing to check or to watch on from, and the
// state is read again. It is also read again after a list that could not infer deletions,
// but only once the watch has ended, because the next list may be no better.
func (r *Reflector[T]) resume(check bool) {
	if !r.plan.list && (r.intake.version == "" || r.intake.vague) {
		r.plan.list, r.plan.cause = true, Incomplete
	}
	r.plan.aim = r.intake.continued && !r.plan.list
	r.plan.check = check && !r.plan.list && !r.plan.aim
}

// open reads the state, if that is planned, and returns a watch from there. The watch may
// cancel ctx.
func (r *Reflector[T]) open(ctx context.Context, cancel context.CancelCauseFunc) (*stream[T], error) {
	switch {
	case r.plan.list:
		s, err := r.state(ctx)
		if err != nil {
			return nil, err
		}
		r.barren = 0
		if s != nil {
			return s, nil
		}
		r.plan = plan{}
	case r.plan.aim:
		if err := r.intake.aim(ctx); err != nil {
			return nil, err
		}
	case r.plan.check:
		if err := r.intake.check(ctx); err != nil {
			return nil, fmt.Errorf("check version %s: %w", r.intake.version, err)
		}
	}
	return r.intake.watch(ctx, cancel)
}

// state waits for its turn and reads the whole state. It returns the stream that
// continues from there, or nil if a watch must be opened.
func (r *Reflector[T]) state(ctx context.Context) (*stream[T], error) {
	if r.intake.opts.Turn != nil {
		done, err := r.intake.opts.Turn(ctx)
		if err != nil {
			return nil, fmt.Errorf("wait for a turn to list: %w", err)
		}
		defer done()
	}
	r.intake.enter(Listing)
	r.intake.cause = r.plan.cause
	if err := r.intake.findRestore(ctx, r.plan.recent); err != nil {
		return nil, err
	}
	if !r.streams || r.plan.pages {
		return nil, r.intake.list(ctx, r.plan.recent)
	}
	s, err := r.intake.stream(ctx, r.plan.recent)
	if err == nil && r.intake.opts.Reopen {
		s.close()
		s = nil
	}
	return s, err
}

// recover plans the next step after a failure, and waits before it if necessary. It does
// not wait if the connection of a sound watch was lost: something between the source and
// the reflector may end all connections after a time.
func (r *Reflector[T]) recover(ctx context.Context, err error) error {
	if err == nil {
		return nil // the watch ended in good order
	}
	r.intake.failed(err)
	// The next server may be a different one, or the same one restored.
	r.resume(true)
	reason := ReasonOf(err)
	switch {
	case reason == NotServed:
		return r.park(ctx)
	case reason == NotSupported && r.plan.list && r.streams && !r.plan.pages:
		r.intake.logger.Info("reading the state as a list: the server does not stream it", "err", err)
		r.streams = false
		r.intake.note(func(s *Status) { s.Streams = false })
		return nil
	case reason == Expired && r.tryAgain():
		return nil
	case reason == Expired:
		// If the version was too old even for a list, only the most recent state is left.
		r.plan = plan{list: true, recent: r.plan.list, cause: r.causeUnlessListing(VersionExpired)}
	case reason == TooLarge, errors.Is(err, errBack), errors.Is(err, errRestored):
		r.plan = plan{list: true, recent: true, cause: r.causeUnlessListing(WentBack)}
	case reason == Undecodable:
		// A deletion could not be read. The list must be from after it. If its version
		// could not be read either, that is the most recent state.
		r.plan = plan{list: true, recent: errors.Is(err, errVersionUnknown), cause: r.causeUnlessListing(LostDeletion)}
	case reason == Busy, reason == Refused:
		// The state has not changed; retry.
	case r.plan.list:
		// Alternate between a stream and pages, whatever the error was.
		r.plan.pages = !r.plan.pages
	case r.sound && reason == Unknown:
		r.intake.enter(Waiting)
		r.intake.logger.Info("watch was interrupted", "err", err, "rv", r.intake.version)
		return nil
	case r.sound:
		// The source itself has ended the watch, and may be in trouble.
	default:
		if r.barren++; r.barren >= fruitless {
			r.barren, r.plan = 0, plan{list: true, cause: WatchFailed}
		}
	}
	wait := r.backoff.next(err)
	r.intake.enter(Waiting)
	r.intake.logger.Warn("will retry", "err", err, "wait", wait, "rv", r.intake.version)
	return r.rest(ctx, wait)
}

// giveUpCatchingUp plans to read the state if a watch has ended in good order before a
// continued copy was current, and had no new version: the source sends no bookmarks, as
// kube-apiserver for events. It also does after too many watches.
func (r *Reflector[T]) giveUpCatchingUp(news int) {
	if !r.intake.continued {
		return
	}
	if r.intake.attempts++; news == 0 || r.intake.attempts >= catchUpWatches {
		r.plan = plan{list: true, cause: Incomplete}
	}
}

// tryAgain reports whether a version that has expired is to be tried on another
// connection: once, for a copy that is catching up.
func (r *Reflector[T]) tryAgain() bool {
	if !r.intake.continued || r.plan.list || r.intake.elsewhere {
		return false
	}
	r.intake.elsewhere = true
	r.plan = plan{aim: true}
	return true
}

// causeUnlessListing returns a cause for a list or, if a list is planned already, the cause
// of that list: it has failed and is repeated.
func (r *Reflector[T]) causeUnlessListing(c Cause) Cause {
	if r.plan.list {
		return r.plan.cause
	}
	return c
}

// park waits for a resource that the source does not have. It asks the source again
// first. If that fails, or the source has the resource after all, park plans a list and
// waits for the backoff. Otherwise it asks until the source has the resource.
//
// The known objects stay until every answer for Options.Absence was that the source does
// not have it. A lagging replica of an extension API server, or an API server that is
// starting, gives that answer for a moment.
func (r *Reflector[T]) park(ctx context.Context) error {
	served, err := r.intake.served(ctx)
	if err != nil || served {
		if err != nil {
			r.intake.failed(err)
		}
		r.plan = plan{list: true, cause: r.causeUnlessListing(NotFound)}
		wait := r.backoff.next(err)
		r.intake.enter(Waiting)
		r.intake.logger.Warn("will retry", "err", r.intake.current().Err, "wait", wait, "rv", r.intake.version)
		return r.rest(ctx, wait)
	}
	r.intake.logger.Info("parked: the server does not have the resource", "kept", r.intake.holds)
	r.intake.enter(Parked)
	absent := time.Now()
	retry := backoff{first: r.intake.opts.Backoff, most: r.intake.opts.Park}
	for {
		if r.intake.holds && !absent.IsZero() && r.intake.opts.Absence >= 0 &&
			time.Since(absent) >= r.intake.opts.Absence {
			if err := r.intake.clear(ctx); err != nil {
				return err
			}
		}
		wait := r.intake.opts.Park + rand.N(r.intake.opts.Park/4+1)
		if r.intake.holds {
			wait = min(wait, retry.next(nil)) // the resource may be back soon
			if !absent.IsZero() && r.intake.opts.Absence >= 0 {
				wait = min(wait, time.Until(absent.Add(r.intake.opts.Absence)))
			}
		}
		if err := timer.Sleep(ctx, wait); err != nil {
			return err
		}
		switch served, err := r.intake.served(ctx); {
		case err != nil:
			r.intake.failed(err)
			absent = time.Time{} // the answers before this one no longer count
		case served:
			r.plan = plan{list: true, cause: r.causeUnlessListing(NotFound)}
			return nil
		case absent.IsZero():
			absent = time.Now()
		}
	}
}
