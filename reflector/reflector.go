// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/timer"
)

// ErrRunning is returned by a second Run while the first has not returned.
var ErrRunning = errors.New("reflector is running already")

var (
	// errShort is a watch that the source ended at once.
	errShort = errors.New("watch ended at once, with nothing in it")
	// errBack is a list that is older than what was seen before.
	errBack = errors.New("list is older than what was seen before")
	// errSometime is a deletion at a version that could not be read.
	errSometime = errors.New("its version is not known")
)

// fruitless is how many watches in a row may fail without bringing anything
// before the state is read anew: perhaps something in the stream cannot be read.
const fruitless = 3

// Reflector keeps a queue in step with a source. Create it with [New].
type Reflector[T any] struct {
	source  Source[T]
	queue   *delta.FIFO[T]
	opts    Options
	running atomic.Bool

	// What follows is Run's. version is the last one seen, "" before the first
	// list; it outlives Run, as the consumer's copy does. plan is what to do next.
	version string
	plan    plan
	backoff backoff
	// back: the source has gone back behind version, and no list since then is
	// complete.
	back bool
	// vague: the last list had an object whose key could not be read, and inferred no
	// deletion.
	vague bool
	// holds: the consumer may have objects.
	holds bool
	// streams is whether to ask for the state as a stream.
	streams bool
	// barren counts watches that failed and brought nothing.
	barren int

	// mu guards status.
	mu     sync.Mutex
	status Status
}

// plan is what to do next.
type plan struct {
	// list says to read the whole state: the most recent one, or else any that
	// is not older than version.
	list, recent bool
	// pages says to list it this time, though the source could stream.
	pages bool
	// check says to ask, before watching on, whether the source has gone back.
	check bool
}

// New returns a reflector of source into queue. A nil opts means the defaults. It
// panics if source or queue is nil.
func New[T any](source Source[T], queue *delta.FIFO[T], opts *Options) *Reflector[T] {
	if source == nil || queue == nil {
		panic("reflector.New: nil source or queue")
	}
	return &Reflector[T]{source: source, queue: queue, opts: opts.withDefaults()}
}

// Run keeps the queue in step until ctx ends or the queue is closed, and returns
// nil then. It may be called again afterwards, and then begins with a list that
// is not older than what was seen before.
func (r *Reflector[T]) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer r.running.Store(false)
	defer r.enter(Idle)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.queue.Context(), cancel)()
	r.plan, r.barren = plan{list: true}, 0
	r.backoff = backoff{first: r.opts.Backoff, most: r.opts.MaxBackoff}
	r.streams = !r.opts.ListOnly
	for {
		err := r.session(ctx)
		if ctx.Err() != nil || errors.Is(err, delta.ErrClosed) {
			return nil
		}
		if err := r.recover(ctx, err); err != nil {
			return nil // the context has ended
		}
	}
}

// session carries out the plan and follows the watch it ends in. It returns nil
// if that ended in good order.
func (r *Reflector[T]) session(ctx context.Context) error {
	s, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	r.enter(Watching)
	r.plan = plan{}
	err = r.follow(ctx, s)
	if s.news > 0 {
		r.barren = 0
	}
	// Whoever ended the stream before its time may be another server by now.
	r.resume(time.Now().Before(s.due))
	return err
}

// resume plans to watch on from the last version, after a check if the server may be another one. Without a version
// there is nothing to check or to watch on from: the state is read again. So it is after a list that could not infer
// deletions, but not before the watch has ended: the next list may be no better.
func (r *Reflector[T]) resume(check bool) {
	r.plan.list = r.plan.list || r.version == "" || r.vague
	r.plan.check = check && !r.plan.list
}

// connect gets the state, if it is to, and a watch from there.
func (r *Reflector[T]) connect(ctx context.Context) (*stream[T], error) {
	switch {
	case r.plan.list:
		s, err := r.state(ctx)
		if err != nil || s != nil {
			return s, err
		}
		r.plan = plan{}
	case r.plan.check:
		if err := r.check(ctx); err != nil {
			return nil, fmt.Errorf("check version %s: %w", r.version, err)
		}
	}
	return r.watch(ctx)
}

// state reads the whole state, when it is time. It returns the stream that goes on
// from there, nil if a watch is to.
func (r *Reflector[T]) state(ctx context.Context) (*stream[T], error) {
	if r.opts.Turn != nil {
		done, err := r.opts.Turn(ctx)
		if err != nil {
			return nil, fmt.Errorf("wait for a turn to list: %w", err)
		}
		defer done()
	}
	r.enter(Listing)
	back, err := r.wentBack(ctx)
	if err != nil {
		return nil, err
	}
	if !r.streams || r.plan.pages {
		return nil, r.list(ctx, back)
	}
	s, err := r.stream(ctx, back)
	if err == nil && r.opts.Reopen {
		s.close()
		s = nil
	}
	return s, err
}

// recover decides what to do about a failure, and waits if it is to.
func (r *Reflector[T]) recover(ctx context.Context, err error) error {
	if err == nil {
		return nil // the end of a watch in good order
	}
	r.failed(err)
	// Whoever answers next may be another server, or the same one restored.
	r.resume(true)
	reason := ReasonOf(err)
	switch {
	case reason == NotServed:
		return r.park(ctx)
	case reason == NotSupported && r.plan.list && r.streams && !r.plan.pages:
		r.opts.Logger.Info("state is listed, not streamed", "err", err)
		r.streams = false
		r.note(func(s *Status) { s.Streams = false })
		return nil
	case reason == Expired:
		// If even the list was too old for the source, only the newest will do.
		r.plan = plan{list: true, recent: r.plan.list}
	case reason == TooLarge, errors.Is(err, errBack):
		r.plan = plan{list: true, recent: true}
	case reason == Undecodable:
		// A deletion that could not be read. The list must be of a time after it: if
		// its version could not be read either, the most recent.
		r.plan = plan{list: true, recent: errors.Is(err, errSometime)}
	case reason == Busy, reason == Refused:
		// Its state is what it was; ask again.
	case r.plan.list:
		// Once this way, once the other, whatever it was.
		r.plan.pages = !r.plan.pages
	default:
		if r.barren++; r.barren >= fruitless {
			r.barren, r.plan = 0, plan{list: true}
		}
	}
	wait := r.backoff.next(err)
	r.enter(Waiting)
	r.opts.Logger.Warn("will retry", "err", err, "wait", wait, "rv", r.version)
	return timer.Sleep(ctx, wait)
}

// park deals with a resource that the source does not have, and returns when the source has it, or cannot say
// whether it does. The objects that are known stay until nothing but that answer has come for Options.Absence: one
// replica of an extension API server that lags, or an API server that is starting, gives it for a moment.
func (r *Reflector[T]) park(ctx context.Context) error {
	served, err := r.served(ctx)
	if err != nil || served {
		if err != nil {
			r.failed(err)
		}
		r.plan = plan{list: true}
		r.enter(Waiting)
		return timer.Sleep(ctx, r.backoff.next(err))
	}
	r.opts.Logger.Info("parked: the server does not have the resource", "kept", r.holds)
	r.enter(Parked)
	absent := time.Now()
	retry := backoff{first: r.opts.Backoff, most: r.opts.Park}
	for {
		if r.holds && !absent.IsZero() && r.opts.Absence >= 0 && time.Since(absent) >= r.opts.Absence {
			if err := r.clear(ctx); err != nil {
				return err
			}
		}
		wait := r.opts.Park + rand.N(r.opts.Park/4+1)
		if r.holds {
			wait = min(wait, retry.next(nil)) // it may be back in a moment
			if !absent.IsZero() && r.opts.Absence >= 0 {
				wait = min(wait, time.Until(absent.Add(r.opts.Absence)))
			}
		}
		if err := timer.Sleep(ctx, wait); err != nil {
			return err
		}
		switch served, err := r.served(ctx); {
		case err != nil:
			r.failed(err)
			absent = time.Time{} // the answers before this one prove nothing any more
		case served:
			r.plan = plan{list: true}
			return nil
		case absent.IsZero():
			absent = time.Now()
		}
	}
}

// served asks, and gives up if there is no answer.
func (r *Reflector[T]) served(ctx context.Context) (bool, error) {
	quiet := listen(ctx, r.opts.Silence, time.Time{})
	defer quiet.stop()
	served, err := r.source.Served(quiet.ctx)
	return served, quiet.cause(err)
}

// clear deletes all objects. The version stays: what comes back is newer, unless the source has gone back.
func (r *Reflector[T]) clear(ctx context.Context) error {
	r.opts.Logger.Info("objects are deleted: the server does not have the resource", "for", r.opts.Absence)
	r.holds = false
	relist, err := r.queue.Relist(ctx)
	if err != nil {
		return err
	}
	defer relist.Close()
	return relist.Commit(ctx, 0)
}

// newer reports whether version comes after last; of versions that are no numbers,
// any other does.
func newer(version, last string) bool {
	n := number(version)
	return n > number(last) || n == 0 && version != "" && version != last
}

// number is a version as a number, 0 if it is none.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
