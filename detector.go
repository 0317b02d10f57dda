// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/wire"
)

// detector finds objects that were modified after the informer returned them, by
// comparing them with the bytes that they were decoded from. It keeps all returned
// values until their objects have left the store.
type detector[T any] struct {
	fresh   func(*wire.Object) (T, error)
	mutated func(key string, was, is T)
	// ended ends with Discard.
	ended context.Context
	end   context.CancelFunc

	// mu guards the fields below.
	mu  sync.Mutex
	out map[*wire.Object]T
}

func newDetector[T any](fresh func(*wire.Object) (T, error), mutated func(key string, was, is T)) *detector[T] {
	d := &detector[T]{fresh: fresh, mutated: mutated, out: map[*wire.Object]T{}}
	d.ended, d.end = context.WithCancel(context.Background())
	return d
}

// Discard ends the comparisons.
func (d *detector[T]) Discard() { d.end() }

// watch returns a decode function that records the values it returns.
func (d *detector[T]) watch(decode func(*wire.Object) (T, error)) func(*wire.Object) (T, error) {
	return func(o *wire.Object) (T, error) {
		value, err := decode(o)
		if err == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.out[o] = value
		}
		return value, err
	}
}

// Join compares every second until the life ends.
func (d *detector[T]) Join(l *engine.Life) {
	l.Spawn(d, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.ended, cancel)()
		for timer.Sleep(ctx, time.Second) == nil {
			d.look(l, false)
		}
		d.look(l, true)
	})
}

// look compares all values. It then drops those whose objects have left the store or,
// if last, all of them.
func (d *detector[T]) look(l *engine.Life, last bool) {
	type finding struct {
		key     string
		was, is T
	}
	var found []finding
	defer func() {
		// The lock is not held, because mutated may read the informer.
		for _, f := range found {
			d.mutated(f.key, f.was, f.is)
		}
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	for o, is := range d.out {
		was, err := d.fresh(o)
		if now, ok := l.Store().Get(o.Key()); last || !ok || now != o {
			delete(d.out, o)
		}
		if err == nil && !reflect.DeepEqual(was, is) {
			delete(d.out, o) // reported once
			found = append(found, finding{o.Key(), was, is})
		}
	}
}
