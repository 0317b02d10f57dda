// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package admission

import "context"

// Slots admits as many at once as its capacity. It is a channel, so that a context can end
// the wait.
type Slots chan struct{}

// Enter waits for a slot. The caller calls leave at the end.
func (s Slots) Enter(ctx context.Context) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // select would choose between both at random
	}
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
