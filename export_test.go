// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import "context"

// Settle packs densely what there is now, without waiting for it to be old.
func Settle[T any](i *Informer[T]) {
	l := i.engine.current.Load()
	l.packing.due() // notes how far it may go
	if l.packing.due() {
		done := make(chan struct{})
		l.packing.shared.ask(func() bool {
			return l.spawn(func(ctx context.Context) {
				defer close(done)
				defer l.packing.shared.done()
				l.packing.settle(ctx)
			})
		})
		<-done
	}
}

// Pause is what settling does between two moments of work.
func (p *Packing) Pause(ctx context.Context) bool { return p.pause(ctx) }
