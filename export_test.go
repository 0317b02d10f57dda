// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import "context"

// Settle packs all current objects densely, without waiting for them to be old.
func Settle[T any](i *Informer[T]) {
	l := i.engine.current.Load()
	l.packing.due() // records how far settle may go
	if l.packing.due() {
		done := make(chan struct{})
		l.packing.shared.ask(&packingTurn{start: func() bool {
			return l.spawn(l.packing, func(ctx context.Context) {
				defer close(done)
				defer l.packing.shared.done()
				l.packing.settle(ctx)
			})
		}})
		<-done
	}
}

// Occupy takes the turn at packing densely until the caller calls done.
func (p *Packing) Occupy() (done func()) {
	p.ask(&packingTurn{start: func() bool { return true }})
	return p.done
}

// Waiting returns the number of informers that wait for their turn.
func (p *Packing) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.next)
}

// Pause waits as settling does between two periods of work.
func (p *Packing) Pause(ctx context.Context) bool { return p.pause(ctx) }

// Indexes returns the number of indexes of an informer's engine.
func Indexes[T any](i *Informer[T]) int {
	i.engine.mu.Lock()
	defer i.engine.mu.Unlock()
	n := 0
	for p := range i.engine.parts {
		if _, ok := p.(interface{ Failing() (int, error) }); ok {
			n++
		}
	}
	return n
}

// Dictionaries returns the number of kinds that have a dictionary, and the bytes that
// dictionaries and samples take.
func (p *Packing) Dictionaries() (n, bytes int) { return p.packer.Dictionaries() }
