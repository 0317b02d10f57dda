// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"errors"
	"math/rand/v2"
	"time"
)

// calm is how long without a failure makes the next one the first again.
const calm = 2 * time.Minute

// backoff counts failures and says how long to wait after each. The first wait is
// anything below the first step: readers of a server that restarts shall not all
// come back at once, and one that lost a single connection shall not wait long.
type backoff struct {
	first, most time.Duration
	failures    int
	// calmed is when a failure will be the first again.
	calmed time.Time
}

func (b *backoff) next(err error) time.Duration {
	now := time.Now()
	if now.After(b.calmed) {
		b.failures = 0
	}
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
		// What the server asks for, and a little more, for the same reason.
		wait = max(wait, e.RetryAfter+rand.N(min(first, e.RetryAfter/4+1)))
	}
	b.calmed = now.Add(wait + calm)
	return wait
}
