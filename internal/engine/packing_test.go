// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// oneObject is a source with an object that does not change.
type oneObject struct{ object *wire.Object }

func newOneObject(t *testing.T) oneObject {
	t.Helper()
	o, err := wire.NewObject(
		[]byte(
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","resourceVersion":"101"}}`,
		), wire.JSON, nil)
	expect.NoError(t, err)
	return oneObject{o}
}

func (s oneObject) List(
	_ context.Context, _ reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	return reflector.Page{Version: "101"}, each(s.object)
}

func (oneObject) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return silentWatch{ctx}, nil
}

func (oneObject) Served(context.Context) (bool, error) { return true, nil }

type silentWatch struct{ ctx context.Context }

func (w silentWatch) Next() (reflector.Event[*wire.Object], error) {
	<-w.ctx.Done()
	return reflector.Event[*wire.Object]{}, w.ctx.Err()
}

func (silentWatch) Close() error { return nil }

// engine returns an engine of the source that packs.
func (s oneObject) engine(p *Packing) *Engine {
	values := valuecache.New(valuecache.Options{Recent: 1 << 20})
	return New(s, Options{Packed: true, Packing: p, Values: values, Reflector: reflector.Options{
		ListOnly: true, Silence: 48 * time.Hour, Timeout: 48 * time.Hour, Logger: slog.New(slog.DiscardHandler),
	}})
}

// runUntilStopped runs an engine until stop is called.
func runUntilStopped(t *testing.T, e *Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { expect.NoError(t, e.Run(ctx)) })
	return func() {
		cancel()
		running.Wait()
	}
}

// occupy takes the turn at packing densely until the caller calls done.
func occupy(p *Packing) (done func()) {
	p.ask(&packingTurn{start: func() bool { return true }})
	return p.done
}

// waiting returns the number of lives that wait for their turn.
func waiting(p *Packing) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.next)
}

// TestPacking_slowsDownForWhatIsMoreUrgent has settling pause during more urgent work,
// and still make some progress, because that work may never end.
func TestPacking_slowsDownForWhatIsMoreUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		busy := func() bool { return time.Since(began) < 150*time.Millisecond }
		p := NewPacking(0.25, 0, func() bool { return busy() })
		expect.Equal(t, p.pause(t.Context()), true)
		if waited := time.Since(began); waited < 150*time.Millisecond || waited > 250*time.Millisecond {
			t.Errorf("went on after %v", waited)
		}
		from := time.Now()
		expect.Equal(t, p.pause(t.Context()), true)
		expect.Equal(t, time.Since(from), 6*time.Millisecond) // a quarter of the time is work
		busy = func() bool { return true }
		from = time.Now()
		for range 100 {
			expect.Equal(t, p.pause(t.Context()), true)
		}
		if waited := time.Since(from); waited < 20*time.Second || waited > 60*time.Second {
			t.Errorf("worked a hundred times in %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		expect.Equal(t, p.pause(ctx), false)
	})
}

// TestPacking_doesNotKeepStoppedInformers stops an engine that waits for its turn.
func TestPacking_doesNotKeepStoppedInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOneObject(t)
		p := NewPacking(0, 0, nil)
		done := occupy(p)
		for range 2 {
			e := s.engine(p)
			stop := runUntilStopped(t, e)
			<-e.Current().Synced()
			time.Sleep(2 * time.Minute) // the engine requests a turn in this time
			expect.Equal(t, waiting(p), 1)
			stop()
			expect.Equal(t, waiting(p), 0)
		}
		done()
	})
}

// TestPacking_turnsAreForRunningInformers: an engine that is written to and does not run
// would never end its turn.
func TestPacking_turnsAreForRunningInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOneObject(t)
		p := NewPacking(0, 0, nil)
		done := occupy(p)
		e := s.engine(p)
		e.Current().Apply(delta.Deltas[*wire.Object]{
			{Type: delta.Added, Key: s.object.Key(), Object: s.object, Version: s.object.Version()},
		})
		time.Sleep(2 * time.Minute)
		expect.Equal(t, waiting(p), 0)
		// When it runs, it requests a turn, also if the list changes nothing.
		stop := runUntilStopped(t, e)
		<-e.Current().Synced()
		time.Sleep(2 * time.Minute)
		expect.Equal(t, waiting(p), 1)
		stop()
		done()
	})
}
