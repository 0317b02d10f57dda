// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"errors"
	"math/rand/v2"
	"time"
)

// backoff counts failures and computes the wait after each. The first wait is a random
// time below the first step: the clients of a restarted server must not all reconnect at
// once, and one whose request failed once must not wait long.
type backoff struct {
	first, most time.Duration
	// failures counts the failures since the last sound watch, see [stream.sound].
	failures int
}

// next counts a failure and returns how long to wait after it.
func (b *backoff) next(err error) time.Duration {
	first := min(b.first, b.most)
	wait := rand.N(first)
	if b.failures > 0 {
		step := first
		for range b.failures - 1 {
			if step >= b.most/2 {
				step = b.most
				break
			}
			step *= 2
		}
		wait = step + rand.N(step)
	}
	b.failures++
	var e *Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		// Wait as long as the server asks for, and a little more, for the same reason.
		wait = max(wait, e.RetryAfter+rand.N(min(first, e.RetryAfter/4+1)))
	}
	return wait
}

// reset makes the next failure count as the first.
func (b *backoff) reset() { b.failures = 0 }
