// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"errors"
	"math/rand/v2"
	"time"
)

// calm is how long there must be no failure before the next one counts as the first.
const calm = 2 * time.Minute

// backoff counts failures and computes the wait after each. The first wait is a random
// time below the first step: the clients of a restarted server must not all reconnect at
// once, and one that lost a single connection must not wait long.
type backoff struct {
	first, most time.Duration
	failures    int
	// calmed is when the next failure counts as the first again.
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
		// Wait as long as the server asks for, and a little more, for the same reason.
		wait = max(wait, e.RetryAfter+rand.N(min(first, e.RetryAfter/4+1)))
	}
	b.calmed = now.Add(wait + calm)
	return wait
}
