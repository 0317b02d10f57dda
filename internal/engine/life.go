// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// ErrStopped is returned to callers that wait for a run that has ended.
var ErrStopped = errors.New("informer has stopped")

// queuedBytes limits the bytes of states that wait to be stored. As many are being
// stored.
const queuedBytes = 16 << 20

// Life is one run of an engine: the stages of the flow, connected.
type Life struct {
	timeline
	readers
	tasks
	queue     *delta.FIFO[*wire.Object]
	reflector *reflector.Reflector[*wire.Object]
	packing   *packing // nil if objects are not packed
	held      holdings
	facets    facetsOf
	counters  *Counters
	batch     func(BatchStats) // may be nil
	tap       func(*Snapshot, []Change, bool)
	// stopped is closed when the run ends.
	stopped chan struct{}
	// filled is how often the queue was filled since the consumer was last known to have
	// emptied it. The consumer is a goroutine of consuming, which runs while filled is not
	// 0: a process may have many informers, and most are idle.
	filled    atomic.Uint64
	consuming sync.WaitGroup

	// writing keeps the store and the log in step: both receive the same changes. It
	// guards the fields below. The log begins when the store has a complete state, because
	// it has no readers before.
	writing sync.Mutex
	live    bool
	// resuming means that the state is that of an earlier run, and not current yet.
	resuming bool
	files    files
	// relisting means that a list is being applied: the store is between two states of
	// the server.
	relisting bool
	// running is set while the life runs. maintained stops the periodic work. It is nil
	// before the first change.
	running    bool
	maintained []func()
}

func newLife(source reflector.Source[*wire.Object], opts Options) *Life {
	l := &Life{stopped: make(chan struct{})}
	attribute := (*wire.Object).Label
	if opts.Facets != nil {
		attribute = facets.Attribute
	}
	l.initTimeline(opts.Window, attribute)
	l.initReaders(&l.timeline)
	waiting := 0 // the queue's default
	if opts.Packed {
		waiting = packedQueue
	}
	l.tap, l.counters, l.batch = opts.Tap, opts.Counters, opts.Batch
	l.files.stored, l.files.logger = opts.Stored, opts.Reflector.Logger
	transform := guarded(opts.Transform)
	l.facets.transformed = transform != nil
	if opts.Stored != nil {
		transform = l.files.writers.noting(transform)
	}
	same := objectpack.Unify
	if opts.Facets != nil {
		l.facets.plan, l.facets.store = opts.Facets, l.store
		transform, same = l.facets.around(transform, opts.Drops), l.facets.unified
	}
	l.queue = delta.New((*wire.Object).Key, &delta.Options[*wire.Object]{
		Known:     l.store,
		Transform: transform,
		Same:      same,
		Version:   (*wire.Object).Version,
		Capacity:  waiting,
		Size:      (*wire.Object).Size,
		Bytes:     queuedBytes,
		Filled:    l.fill,
	})
	if opts.Packed {
		l.packing = newPacking(l.store, &l.held, opts.Packing)
		l.packing.turn.start = l.startSettling
	}
	l.reflector = reflector.New(source, l.queue, &opts.Reflector)
	return l
}

// Store returns the store of the life.
func (l *Life) Store() *store.Store[*wire.Object] { return l.store }

// Snapshot returns the current state.
func (l *Life) Snapshot() *Snapshot { return l.store.Snapshot() }

// Reflector returns the reflector of the life.
func (l *Life) Reflector() *reflector.Reflector[*wire.Object] { return l.reflector }

// Stopped returns a channel that is closed when the run ends.
func (l *Life) Stopped() <-chan struct{} { return l.stopped }

// Queued returns the number of deltas that wait to be stored, and their size with those that
// are being stored.
func (l *Life) Queued() (n, bytes int) { return l.queue.Len(), l.queue.Bytes() }

// LogStats returns the window of the log.
func (l *Life) LogStats() fanout.Stats { return l.log.Stats() }

// Held returns the sum of the objects' sizes, and the number of packed objects.
func (l *Life) Held() (bytes int64, packed int) {
	return l.held.bytes.Load(), int(l.held.packed.Load())
}

// DictionaryBytes returns the size of the dictionaries, divided by the number of lives that
// share them. It is 0 if objects are not packed.
func (l *Life) DictionaryBytes() int64 {
	if l.packing == nil {
		return 0
	}
	return l.packing.shared.DictionaryBytes() / max(l.packing.shared.users.Load(), 1)
}

// settle requests the life's turn to pack old objects densely, if there are any.
func (l *Life) settle() {
	if !l.packing.due() {
		return
	}
	l.packing.shared.ask(&l.packing.turn)
}

// Settle packs all objects densely, without waiting for them to be old, and returns when they
// are packed. It is for tests.
func (l *Life) Settle() {
	l.packing.due() // records how far settle may go
	if !l.packing.due() {
		return
	}
	done := make(chan struct{})
	l.packing.shared.ask(&packingTurn{start: func() bool {
		return l.Spawn(l.packing, func(ctx context.Context) {
			defer close(done)
			defer l.packing.shared.done()
			l.packing.settle(ctx)
		})
	}})
	<-done
}

// startSettling starts to pack densely. It returns false if the life is over.
func (l *Life) startSettling() bool {
	return l.Spawn(l.packing, func(ctx context.Context) {
		defer l.packing.shared.done()
		l.packing.settle(ctx)
	})
}

// run keeps the life going until ctx ends. After the last write it calls ended, and
// then waits for everything that it started. The reflector runs in its caller's
// goroutine, at the end of a short chain of calls with small frames: see
// [reflector.Waiter].
func (l *Life) run(ctx context.Context, ended func()) error {
	if l.packing != nil {
		l.packing.shared.users.Add(1)
	}
	l.facets.begin(ctx)
	l.begin(ctx)
	l.maintain()
	l.restore(ctx)
	err := l.reflector.Run(ctx)
	l.end(ended)
	return err
}

// maintain starts the periodic work if something was written before the life began.
func (l *Life) maintain() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.running = true
	if l.store.Snapshot().Revision() > 0 {
		l.maintainLocked()
	}
}

// maintainLocked starts the periodic work, unless it has started. There is none before
// the first change, and none unless the life runs: nothing would stop it, and it would keep
// the life in memory.
func (l *Life) maintainLocked() {
	if l.maintained != nil || !l.running {
		return
	}
	l.maintained = append(l.maintained, timer.Every(time.Minute, l.tidy))
	if l.packing != nil {
		l.maintained = append(l.maintained, timer.Every(settleAfter, l.settle))
	}
}

// end ends the life after the last write, calls ended, and waits for everything that the
// life has started.
func (l *Life) end(ended func()) {
	l.queue.Close()
	l.consuming.Wait()
	l.files.close()
	l.refuse()
	if l.packing != nil {
		l.packing.shared.leave(&l.packing.turn)
	}
	close(l.stopped)
	l.log.Close()
	ended()
	l.tasks.running.Wait()
	l.endMaintenance()
	if l.packing != nil {
		l.packing.shared.users.Add(-1)
	}
}

// endMaintenance stops the periodic work, for ever.
func (l *Life) endMaintenance() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.running = false
	for _, stop := range l.maintained {
		stop()
	}
}

// Wait returns nil when the life has synced, or the reason why it never will.
func (l *Life) Wait(ctx context.Context) error { return l.WaitUnless(ctx, nil) }

// WaitUnless is Wait, but also returns nil when unwanted is closed.
func (l *Life) WaitUnless(ctx context.Context, unwanted <-chan struct{}) error {
	select {
	case <-l.synced:
		return nil
	case <-unwanted:
		return nil
	default:
	}
	select {
	case <-l.synced:
		return nil
	case <-unwanted:
		return nil
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fill starts the consumer, unless it runs.
func (l *Life) fill() {
	if l.filled.Add(1) == 1 {
		l.consuming.Go(l.consume)
	}
}

// consume moves queued deltas into the store and the log until the queue is empty, or the
// run ends.
func (l *Life) consume() {
	for l.ctx.Err() == nil {
		filled := l.filled.Load()
		// The function that processes the deltas never fails.
		_, _ = l.queue.TryDrain(l.process)
		if l.filled.CompareAndSwap(filled, 0) {
			return
		}
	}
}

// process stores a batch of deltas.
func (l *Life) process(deltas delta.Deltas[*wire.Object], _ bool) error {
	arrived := l.reflector.Arrived()
	if l.batch != nil {
		defer l.report(time.Now(), len(deltas))
	}
	// Events of the watch may follow the first list in the same batch. Only the consumer
	// changes live.
	if end := slices.IndexFunc(deltas, endsList); !l.live && end >= 0 {
		l.Apply(deltas[:end+1])
		l.goLive()
		deltas = deltas[end+1:]
	} else if l.resuming {
		deltas = l.catchUp(deltas)
	}
	l.Apply(deltas)
	l.counters.applied(arrived)
	return nil
}

// restore makes the stored state the life's, if there is one. The reflector then continues
// from its version.
func (l *Life) restore(ctx context.Context) {
	var packer *objectpack.Packer
	if l.packing != nil {
		packer = l.packing.packer
	}
	s := l.files.open(ctx, packer)
	if s == nil {
		return
	}
	l.facets.attach(s.Objects)
	deltas := make(delta.Deltas[*wire.Object], 0, len(s.Objects)+1)
	for _, o := range s.Objects {
		deltas = append(deltas, delta.Delta[*wire.Object]{Type: delta.Replaced, Key: o.Key(), Object: o})
	}
	deltas = append(deltas, delta.Delta[*wire.Object]{Type: delta.Bookmark, Version: s.Version})
	l.writing.Lock()
	defer l.writing.Unlock()
	// Whoever can read the stored state can see that it is stale.
	l.reflector.Continue(s.Version, s.Time, newestOf(s.Objects)...)
	changes := l.storeLocked(deltas)
	if len(changes) > 0 {
		l.maintainLocked()
	}
	l.packing.pack(changes)
	l.live, l.resuming = true, true
	l.files.writers.take(nil, s.Version)
	if l.files.stored.Loaded != nil {
		l.files.stored.Loaded(s)
	}
	if l.tap != nil {
		l.tap(l.store.Snapshot(), nil, true)
	}
}

// catchUp starts the readers of a restored life if it is current after some of the deltas,
// and returns those that are left.
func (l *Life) catchUp(deltas delta.Deltas[*wire.Object]) delta.Deltas[*wire.Object] {
	goal := l.reflector.Goal()
	end := slices.IndexFunc(deltas, func(d delta.Delta[*wire.Object]) bool {
		return endsList(d) || d.Type == delta.Bookmark && goal > 0 && d.Version >= goal
	})
	if end < 0 {
		return deltas
	}
	l.Apply(deltas[:end+1])
	l.resuming = false
	l.startReaders(l.store.Snapshot())
	return deltas[end+1:]
}

// report reports a batch that has been stored.
func (l *Life) report(began time.Time, changes int) {
	l.batch(BatchStats{
		Changes: changes, Queued: l.queue.Len(), Took: time.Since(began), Version: l.store.Snapshot().Version(),
	})
}

// endsList reports whether a complete list ends with a delta.
func endsList(d delta.Delta[*wire.Object]) bool { return d.Type == delta.Bookmark && d.Listed }

// goLive begins the log at the state of the first list, and starts the waiting readers
// there.
func (l *Life) goLive() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.live = true
	first := l.store.Snapshot()
	if l.tap != nil {
		l.tap(first, nil, true)
	}
	l.files.append(first, nil, nil, false)
	l.startReaders(first)
}

// Apply adds deltas to the state and notifies the readers.
func (l *Life) Apply(deltas delta.Deltas[*wire.Object]) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if !l.live || l.tap == nil && l.files.mirror == nil {
		l.applyLocked(deltas)
		return
	}
	for len(deltas) > 0 {
		n := l.stretchLocked(deltas)
		l.applyLocked(deltas[:n])
		deltas = deltas[n:]
	}
}

// stretchLocked returns the length of the longest prefix of deltas that belongs together, and
// records in l.relisting whether a list is being applied after it. It depends on the first delta:
//
//	first delta                             prefix                                    relisting
//	an ordinary change                      up to the first delta of a list           unchanged
//	an item of a list                       up to the bookmark that ends the list     true
//	the end of a list that has begun        that bookmark                             false
//	the end of a list that has not begun    empty                                     true
//
// In the last case the list is empty, or nothing has changed: the tap is called for the list
// before its end. While a list is queued nothing else is, so a tap that receives a prefix with
// an item knows that all of it is of the list.
func (l *Life) stretchLocked(deltas delta.Deltas[*wire.Object]) int {
	switch {
	case !endsList(deltas[0]):
		return l.untilBoundaryLocked(deltas)
	case l.relisting:
		l.relisting = false
		return 1
	default:
		l.relisting = true
		return 0
	}
}

// untilBoundaryLocked is stretchLocked for deltas that do not begin with the end of a list.
func (l *Life) untilBoundaryLocked(deltas delta.Deltas[*wire.Object]) int {
	for i := range deltas {
		begins := deltas[i].Listed && !l.relisting
		if endsList(deltas[i]) || begins && i > 0 {
			return i
		}
		l.relisting = l.relisting || begins
	}
	return len(deltas)
}

func (l *Life) applyLocked(deltas delta.Deltas[*wire.Object]) {
	l.files.note(deltas)
	changes := l.storeLocked(deltas)
	if len(changes) > 0 {
		l.maintainLocked()
	}
	if l.live {
		l.mark()
		l.log.Publish(changes)
		if l.tap != nil {
			l.tap(l.store.Snapshot(), changes, !l.relisting)
		}
	}
	packed := l.packing.pack(changes)
	if l.live {
		l.files.append(l.store.Snapshot(), changes, packed, l.relisting)
	}
}

// storeLocked adds deltas to the store, and counts the sizes of the objects.
func (l *Life) storeLocked(deltas delta.Deltas[*wire.Object]) []Change {
	apply := func() []Change {
		changes := l.store.Apply(deltas)
		l.held.apply(changes)
		l.facets.apply(changes)
		dropValues(changes)
		return changes
	}
	if l.packing == nil {
		return apply()
	}
	return l.packing.write(apply)
}

// dropValues stops keeping the decoded values of states that have been replaced. Handlers that
// need one still find it until the next garbage collection.
func dropValues(changes []Change) {
	for i := range changes {
		if c := &changes[i]; c.Old != nil && c.Old != c.New {
			c.Old.Views().Drop()
		}
	}
}
