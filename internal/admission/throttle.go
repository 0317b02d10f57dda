// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package admission

import (
	"context"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// Throttle limits a reader to a number of bytes per second. All methods are safe for
// concurrent use, and do nothing on nil.
type Throttle struct {
	perSecond int64
	// burst is for how long a reader that has read less may read as fast as it can.
	burst time.Duration

	// mu guards free, the time at which the bytes read so far are within the rate.
	mu   sync.Mutex
	free time.Time
}

// NewThrottle returns nil if there is no limit.
func NewThrottle(perSecond int64, burst time.Duration) *Throttle {
	if perSecond <= 0 {
		return nil
	}
	return &Throttle{perSecond: perSecond, burst: burst}
}

// Read waits until n more bytes may be read.
func (t *Throttle) Read(ctx context.Context, n int) error {
	if t == nil {
		return nil
	}
	wait := t.pay(n)
	if wait < 10*time.Millisecond {
		return nil // too short: a later read waits for it
	}
	return timer.Sleep(ctx, wait)
}

// pay counts n bytes and returns how long to wait for them.
func (t *Throttle) pay(n int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if least := now.Add(-t.burst); t.free.Before(least) {
		t.free = least
	}
	t.free = t.free.Add(time.Duration(float64(n) / float64(t.perSecond) * float64(time.Second)))
	return t.free.Sub(now)
}
