// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// ErrStopped is returned to callers that wait for a run that has ended.
var ErrStopped = errors.New("informer has stopped")

// queuedBytes limits the bytes of states that wait to be stored. As many are being
// stored.
const queuedBytes = 16 << 20

// lifeOptions configures the lives of an engine.
type lifeOptions struct {
	transform transformation
	memory    Memory
	packing   *Packing // nil: the life has its own
	tap       func(*snapshot, []change, bool)
	recent    *wire.Recent
	report    *Report
	counters  *Counters
	batch     func(BatchStats) // may be nil
	window    int64
	reflector reflector.Options
}

// life is one run of an engine: the stages of the flow, connected.
type life struct {
	timeline
	queue     *delta.FIFO[*wire.Object]
	reflector *reflector.Reflector[*wire.Object]
	packing   *packing // nil if objects are not packed
	held      holdings
	counters  *Counters
	batch     func(BatchStats) // may be nil
	tap       func(*snapshot, []change, bool)
	// synced is closed when the first list is stored, stopped when the run ends.
	synced, stopped chan struct{}

	// writing keeps the store and the log in step: both receive the same changes. It
	// guards live. The log begins when the first list is stored, because it has no
	// readers before.
	writing sync.Mutex
	live    bool
	// relisting means that a list is being applied: the store is between two states of
	// the server.
	relisting bool

	// mu guards the fields below.
	mu sync.Mutex
	// joining has the readers that wait for the first list to be stored, and start at
	// its state. started means that it is stored.
	joining map[*follower]struct{}
	started bool
	ctx     context.Context // set while the life runs
	over    bool
	waiting []func(context.Context) // functions to start when the life runs
	// children are the goroutines that run waits for.
	children sync.WaitGroup
}

func newLife(source reflector.Source[*wire.Object], opts lifeOptions) *life {
	l := &life{synced: make(chan struct{}), stopped: make(chan struct{}), joining: map[*follower]struct{}{}}
	l.initTimeline(opts.window)
	waiting := 0 // the queue's default
	if opts.memory == Packed {
		waiting = packedQueue
	}
	l.tap, l.counters, l.batch = opts.tap, opts.counters, opts.batch
	l.queue = delta.New((*wire.Object).Key, &delta.Options[*wire.Object]{
		Known:     l.store,
		Transform: guarded(opts.transform),
		Version:   (*wire.Object).Version,
		Capacity:  waiting,
		Size:      (*wire.Object).Size,
		Bytes:     queuedBytes,
	})
	if opts.memory == Packed {
		l.packing = newPacking(l.store, &l.held, opts.packing)
		l.packing.turn.start = l.startSettling
	}
	l.reflector = reflector.New(source, l.queue, &opts.reflector)
	return l
}

// spawn runs a function in its own goroutine, now or when the life begins, until its
// context ends. After the end of the life, spawn does not run it and returns false.
func (l *life) spawn(run func(context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
		return false
	case l.ctx == nil:
		l.waiting = append(l.waiting, run)
	default:
		ctx := l.ctx
		l.children.Go(func() { run(ctx) })
	}
	return true
}

// settle requests the life's turn to pack old objects densely, if there are any.
func (l *life) settle() {
	if !l.packing.due() {
		return
	}
	l.packing.shared.ask(&l.packing.turn)
}

// startSettling starts to pack densely. It returns false if the life is over.
func (l *life) startSettling() bool {
	return l.spawn(func(ctx context.Context) {
		defer l.packing.shared.done()
		l.packing.settle(ctx)
	})
}

// begin starts the waiting functions.
func (l *life) begin(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx = ctx
	for _, run := range l.waiting {
		l.children.Go(func() { run(ctx) })
	}
	l.waiting = nil
}

// run keeps the life going until ctx ends. After the last write it calls ended, and
// then waits for everything that it started.
func (l *life) run(ctx context.Context, ended func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.begin(ctx)
	defer timer.Every(time.Minute, l.tidy)()
	if l.packing != nil {
		l.packing.shared.users.Add(1)
		defer l.packing.shared.users.Add(-1)
		defer timer.Every(settleAfter, l.settle)()
	}
	var reflected sync.WaitGroup
	var err error
	reflected.Go(func() {
		err = l.reflector.Run(ctx)
		l.queue.Close()
	})
	l.consume(ctx)
	cancel()
	reflected.Wait()

	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	if l.packing != nil {
		l.packing.shared.leave(&l.packing.turn)
	}
	close(l.stopped)
	l.log.Close()
	ended()
	l.children.Wait()
	return err
}

// wait returns nil when the life has synced, or the reason why it never will.
func (l *life) wait(ctx context.Context) error { return l.waitUnless(ctx, nil) }

// waitUnless is wait, but also returns nil when unwanted is closed.
func (l *life) waitUnless(ctx context.Context, unwanted <-chan struct{}) error {
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

// consume moves queued deltas into the store and the log.
func (l *life) consume(ctx context.Context) {
	synced := false
	for {
		err := l.queue.Drain(ctx, func(deltas delta.Deltas[*wire.Object], _ bool) error {
			arrived := l.reflector.Arrived()
			if l.batch != nil {
				defer l.report(time.Now(), len(deltas))
			}
			// A complete list ends with a bookmark, and nothing else queues one before
			// the first list. Events of the watch may follow it in the same batch.
			if end := slices.IndexFunc(deltas, isBookmark); !synced && end >= 0 {
				l.apply(deltas[:end+1])
				l.goLive()
				synced = true
				deltas = deltas[end+1:]
			}
			l.apply(deltas)
			l.counters.applied(arrived)
			return nil
		})
		if ctx.Err() != nil || errors.Is(err, delta.ErrClosed) {
			return
		}
	}
}

// report reports a batch that has been stored.
func (l *life) report(began time.Time, changes int) {
	l.batch(BatchStats{Changes: changes, Queued: l.queue.Len(), Took: time.Since(began), Version: l.store.Snapshot().Version()})
}

func isBookmark(d delta.Delta[*wire.Object]) bool { return d.Type == delta.Bookmark }

// goLive begins the log at the state of the first list, and starts the waiting readers
// there.
func (l *life) goLive() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.live = true
	first := l.store.Snapshot()
	if l.tap != nil {
		l.tap(first, nil, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
	for f := range l.joining {
		f.start(first)
	}
	l.joining = nil
	close(l.synced)
}

// follow returns a reader of the life. It starts at the current state or, before the
// life has synced, at the state of the first list. Until then it must not be used, and
// an owner that stops waiting must call unfollow. A reader holds the state that it
// starts at, as any slow reader does.
func (l *life) follow() *follower {
	f := &follower{timeline: &l.timeline}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		f.start(l.store.Snapshot())
	} else {
		l.joining[f] = struct{}{}
	}
	return f
}

// unfollow drops a reader that has not started.
func (l *life) unfollow(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.joining, f)
}

// apply adds deltas to the state and notifies the readers.
func (l *life) apply(deltas delta.Deltas[*wire.Object]) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if !l.live || l.tap == nil {
		l.applyLocked(deltas)
		return
	}
	for len(deltas) > 0 {
		n := l.stretchLocked(deltas)
		l.applyLocked(deltas[:n])
		deltas = deltas[n:]
	}
}

// stretchLocked returns the length of the longest prefix of deltas that belongs
// together: the items of one list, the bookmark that ends it, or ordinary changes. It
// records in l.relisting whether the list continues after the prefix. While a list is
// queued nothing else is, so a tap that receives such a prefix knows that all of it is
// of the list. stretchLocked returns 0 for a list without items before its bookmark.
func (l *life) stretchLocked(deltas delta.Deltas[*wire.Object]) int {
	for i := range deltas {
		d := &deltas[i]
		listed := d.Type == delta.Replaced || d.Type == delta.Deleted && d.Missed
		switch {
		case l.relisting && d.Type == delta.Bookmark && i > 0:
			return i
		case l.relisting && d.Type == delta.Bookmark:
			l.relisting = false
			return 1
		case !l.relisting && (listed || d.Listed) && i > 0:
			return i
		case !l.relisting && d.Listed:
			// The list is empty, and so was the store. The tap must be called for the
			// list before its end.
			l.relisting = true
			return 0
		case !l.relisting && listed:
			l.relisting = true
		}
	}
	return len(deltas)
}

func (l *life) applyLocked(deltas delta.Deltas[*wire.Object]) {
	changes := l.storeLocked(deltas)
	if l.live {
		l.mark()
		l.log.Publish(changes)
		if l.tap != nil {
			l.tap(l.store.Snapshot(), changes, !l.relisting)
		}
	}
	l.packing.pack(changes)
}

// storeLocked adds deltas to the store, and counts the sizes of the objects.
func (l *life) storeLocked(deltas delta.Deltas[*wire.Object]) []change {
	apply := func() []change {
		changes := l.store.Apply(deltas)
		l.held.apply(changes)
		return changes
	}
	if l.packing == nil {
		return apply()
	}
	return l.packing.write(apply)
}
