// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package timer runs a function periodically, waits for a time, and wakes those that wait for a
// change, each in the one way that all packages use.
package timer

import (
	"context"
	"sync"
	"time"
)

// Every calls a function each time a period has passed since the last call returned,
// until the caller calls stop. Stop does not wait for a call that is under way.
//
// It is a timer and not a goroutine, because a process may have many informers. A stopped
// timer may stay in the runtime's heap until it would have fired, but it drops its
// reference to the function at once.
func Every(period time.Duration, call func()) (stop func()) {
	p := &periodic{period: period, call: call}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(period, p.fire)
	return p.stop
}

// periodic calls a function again and again. It costs about 200 bytes.
type periodic struct {
	period time.Duration

	// mu guards the fields below. call is nil after stop.
	mu    sync.Mutex
	timer *time.Timer
	call  func()
}

func (p *periodic) fire() {
	p.mu.Lock()
	call := p.call
	p.mu.Unlock()
	if call == nil {
		return
	}
	call()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.call != nil {
		p.timer.Reset(p.period)
	}
}

func (p *periodic) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.call = nil
	p.timer.Stop()
}

// Sleep waits. If ctx ends first, or has ended already, Sleep returns the cause. A wait
// that is not positive is over at once.
func Sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
