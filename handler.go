// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/undecodable"
)

// Handler receives changes, in one call at a time. Functions that are nil are not
// called, and nothing is decoded for them, except updates for a handler with Delete and
// without Update: it may need the last decodable state.
//
// States that cannot be decoded into T are skipped. The first decodable state of an
// object is an Add, whatever happened to the object before. The next state after a
// skipped one is an Update from the last state that the handler received. If the final
// state of an object cannot be decoded, Delete receives that last state, with seen
// false.
type Handler[T any] struct {
	// Name appears in the status and in logs.
	Name string
	// Add is called with a new object, or with initial true with an object that existed
	// when the handler joined.
	Add func(obj T, initial bool)
	// Update is called with a new state. Old is the last state that the handler
	// received. At a resync both are the same.
	Update func(old, now T)
	// Delete is called with the last state of a deleted object. Seen is false if the
	// deletion was not observed: last may then not be the final state.
	Delete func(last T, seen bool)
	// Resync is how often the handler receives every object again. 0 means the
	// informer's [Options.Resync], a negative value never.
	Resync time.Duration
	// Panicked, if it is not nil, is called with the recovered value when a function of
	// the handler panics. It runs in the handler's goroutine and in the deferred call,
	// so that debug.Stack shows where the panic happened. If Panicked panics itself, the
	// program ends. Default: the panic is logged. It is counted in either case.
	Panicked func(value any)
}

// Registration is a handler that was added to an informer.
type Registration struct {
	name   string
	forget func()
	// ended ends when the registration is closed.
	ended context.Context
	end   context.CancelFunc
	done  chan struct{}
	state atomic.Pointer[delivery]

	delivered, panics, undecodable, expired atomic.Uint64

	// mu guards active, which is true while a goroutine may call the handler.
	mu     sync.Mutex
	active bool
}

// delivery is the state of a handler in one life.
type delivery struct {
	life     *engine.Life
	follower *engine.Follower
	synced   chan struct{}
	// position is the revision up to which the handler was called. busy is when its
	// current batch began, in nanoseconds since 1970, or 0 while it waits.
	position atomic.Uint64
	busy     atomic.Int64
	// over means that the handler must not be called again.
	over atomic.Bool
	// skipped has the objects whose current state the handler has not received.
	skipped undecodable.Skipped[string]
}

// Synced returns a channel that is closed when the handler has received all objects
// that existed when it joined, in the current run or, between runs, in the next one. It
// is never closed if the run ends or the handler is closed before that: see
// WaitForSync.
func (r *Registration) Synced() <-chan struct{} { return r.state.Load().synced }

// WaitForSync waits for Synced. It returns the error of ctx, or [ErrStopped] if the run
// ended or the handler was closed before.
func (r *Registration) WaitForSync(ctx context.Context) error {
	d := r.state.Load()
	select {
	case <-d.synced:
		return nil
	default:
	}
	select {
	case <-d.synced:
		return nil
	case <-d.life.Stopped():
		return ErrStopped
	case <-r.ended.Done():
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the calls to the handler. A call in progress continues. Close may be
// called from the handler. A second call does nothing.
func (r *Registration) Close() {
	r.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.Err() != nil {
		return
	}
	r.end()
	d := r.state.Load()
	d.over.Store(true)
	if !r.active {
		d.life.Unspawn(d)
		d.life.Unfollow(d.follower)
		close(r.done)
	}
}

// Done returns a channel that is closed after Close, when the last call has returned.
func (r *Registration) Done() <-chan struct{} { return r.done }

// enter records that a goroutine is going to call the handler. It returns false if the
// handler is closed.
func (r *Registration) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.Err() != nil {
		return false
	}
	r.active = true
	return true
}

func (r *Registration) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active = false
	if r.ended.Err() != nil {
		close(r.done)
	}
}

// registration is a Registration with its handler.
type registration[T any] struct {
	Registration
	informer *Informer[T]
	handler  Handler[T]
}

// Handle adds a handler, at any time. The handler receives the current state once the
// informer has synced, and then every change.
func (i *Informer[T]) Handle(h Handler[T]) *Registration {
	if h.Resync == 0 {
		h.Resync = i.resync
	}
	r := &registration[T]{informer: i, handler: h}
	r.name, r.done = h.Name, make(chan struct{})
	r.ended, r.end = context.WithCancel(context.Background())
	r.forget = func() { i.engine.Remove(r) }
	i.engine.Add(r, i)
	return &r.Registration
}

// Discard closes the handler.
func (r *registration[T]) Discard() { r.Close() }

// Join starts calling the handler in a new life.
func (r *registration[T]) Join(l *engine.Life) {
	f := l.Follow()
	d := &delivery{life: l, follower: f, synced: make(chan struct{})}
	r.state.Store(d)
	shared := r.informer.sharing.in(l)
	l.Spawn(d, func(ctx context.Context) {
		defer l.Unfollow(f)
		if !r.enter() {
			return
		}
		defer r.leave()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(r.ended, cancel)()
		defer context.AfterFunc(ctx, func() { d.over.Store(true) })()
		r.run(ctx, d, f, shared)
	})
}

// run calls the handler until ctx ends.
func (r *registration[T]) run(ctx context.Context, d *delivery, f *engine.Follower, shared *sharing[T]) {
	if d.life.Wait(ctx) != nil {
		return
	}
	d.busy.Store(time.Now().UnixNano())
	for key, o := range f.Base().All() {
		if d.over.Load() {
			return
		}
		if c := (&change{Type: delta.Added, Key: key, New: o}); r.wants(c) {
			r.deliver(d, c, r.informer.decoder.decodeChange(c), true)
		}
	}
	d.position.Store(f.Position()) // before synced is closed, so that the status is right from then on
	close(d.synced)
	again := newResync(r.handler.Resync)
	var b *changeBlock[T]
	for {
		d.position.Store(f.Position())
		d.busy.Store(0)
		b = nil // a handler that waits does not keep decoded changes
		next, err := again.next(ctx, f)
		if err != nil {
			return
		}
		d.busy.Store(time.Now().UnixNano())
		r.expired.Store(f.Expired())
		for c := range next.All {
			if d.over.Load() {
				return
			}
			switch {
			case !r.wants(c):
				r.check(d, c)
			case next.Differences(): // no other handler has them
				r.deliver(d, c, r.informer.decoder.decodeChange(c), false)
			default:
				b = shared.block(c.Revision, b)
				r.deliver(d, c, b.decode(&r.informer.decoder, c), false)
			}
			if !next.Differences() { // those are not in the order of revisions
				d.position.Store(c.Revision)
			}
			if s := again.reached(next, c); s != nil && !r.walk(d, s) {
				return
			}
		}
		if s := again.caughtUp(f); s != nil && !r.walk(d, s) {
			return
		}
	}
}

// walk calls the handler with every object of a state that it has seen. It returns
// false if the handler is over.
func (r *registration[T]) walk(d *delivery, s *snapshot) bool {
	for key, o := range s.All() {
		if d.over.Load() {
			return false
		}
		last, skipped := d.skipped.Last(key)
		if skipped {
			o = last // nil if the handler has received no state
		}
		if c := (&change{Type: delta.Sync, Key: key, Old: o, New: o}); o != nil && r.wants(c) {
			r.call(c, r.informer.decoder.decodeChange(c), false)
		}
	}
	return true
}

// deliver calls the handler with a change if all its states can be decoded and the
// handler has received the state before it.
func (r *registration[T]) deliver(d *delivery, c *change, v *decoded[T], initial bool) {
	if _, skipped := d.skipped.Last(c.Key); skipped || !v.ok {
		r.resolve(d, c)
		return
	}
	r.call(c, v, initial)
}

// check determines whether an update can be decoded, for a handler that has no Update
// but may need the last decodable state for its Add or Delete.
func (r *registration[T]) check(d *delivery, c *change) {
	_, skipped := d.skipped.Last(c.Key)
	if skipped || c.Type == delta.Updated && r.handler.Delete != nil && !r.informer.decoder.decodes(c.New) {
		r.resolve(d, c)
	}
}

// resolve calls the handler with a change of an object that has states which cannot be
// decoded.
func (r *registration[T]) resolve(d *delivery, c *change) {
	all := undecodable.Change{Type: c.Type, Missed: c.Missed, Old: c.Old, New: c.New}
	resolved, ok := d.skipped.Resolve(c.Key, all, r.informer.decoder.decodes)
	if !ok {
		r.undecodable.Add(1)
		return
	}
	now := &change{
		Type: resolved.Type, Missed: resolved.Missed, Key: c.Key, Old: resolved.Old, New: resolved.New,
		Revision: c.Revision, Version: c.Version,
	}
	if r.wants(now) {
		r.call(now, r.informer.decoder.decodeChange(now), false)
	}
}

// wants reports whether the handler has a function for a change.
func (r *registration[T]) wants(c *change) bool {
	switch c.Type {
	case delta.Added:
		return r.handler.Add != nil
	case delta.Deleted:
		return r.handler.Delete != nil
	default:
		return r.handler.Update != nil
	}
}

// call calls the handler with one change. It recovers a panic of the handler.
func (r *registration[T]) call(c *change, v *decoded[T], initial bool) {
	if !v.ok {
		r.undecodable.Add(1)
		return
	}
	defer r.recovered(c)
	switch c.Type {
	case delta.Added:
		r.handler.Add(v.now, initial)
	case delta.Deleted:
		r.handler.Delete(v.now, !c.Missed)
	default:
		r.handler.Update(v.old, v.now)
	}
	r.delivered.Add(1)
}

// recovered counts a panic and logs it or passes it to Panicked. It must be the
// deferred function itself.
func (r *registration[T]) recovered(c *change) {
	if p := recover(); p != nil {
		r.panics.Add(1)
		if r.handler.Panicked != nil {
			r.handler.Panicked(p)
			return
		}
		r.informer.decoder.logger.Error("handler panicked",
			"handler", r.name, "change", c.Type.String(), "object", c.New.String(),
			"err", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// errResync ends a wait for changes because a resync is due.
var errResync = errors.New("resync is due")

// resync determines when a handler receives every object again, and of which state: the
// one that the handler has just reached. After a later state, the handler would receive
// older ones.
type resync struct {
	period time.Duration
	at     time.Time // zero: never
	// target is the state to send when the handler has reached it.
	target *snapshot
}

func newResync(period time.Duration) *resync {
	r := &resync{period: max(period, 0)}
	r.schedule()
	return r
}

func (r *resync) schedule() {
	r.target = nil
	if r.period > 0 {
		r.at = time.Now().Add(r.period)
	}
}

// next is f.Next, but returns no changes when a resync is due.
func (r *resync) next(ctx context.Context, f *engine.Follower) (engine.Changes, error) {
	if r.period == 0 {
		return f.Next(ctx)
	}
	if r.target == nil && !time.Now().Before(r.at) {
		r.target = f.Newest()
	}
	if r.target != nil && r.target.Revision() <= f.Position() {
		return engine.Changes{}, nil
	}
	if r.target == nil {
		wait, cancel := context.WithDeadlineCause(ctx, r.at, errResync)
		defer cancel()
		next, err := f.Next(wait)
		if errors.Is(err, errResync) && ctx.Err() == nil {
			return engine.Changes{}, nil
		}
		return next, err
	}
	return f.Next(ctx)
}

// reached returns the state to send after one of the changes was delivered, or nil.
func (r *resync) reached(all engine.Changes, c *change) *snapshot {
	// Differences have no order. Only the state after the last one existed.
	if r.target == nil || all.Differences() || c.Revision != r.target.Revision() {
		return nil
	}
	defer r.schedule()
	return r.target
}

// caughtUp returns the state to send after a batch, if the handler did not reach it
// change by change, or nil.
func (r *resync) caughtUp(f *engine.Follower) *snapshot {
	if r.target == nil || r.target.Revision() > f.Position() {
		return nil
	}
	defer r.schedule()
	if f.Base().Revision() == f.Position() {
		return f.Base() // the end of differences, or the reader had nothing to read
	}
	return r.target
}
