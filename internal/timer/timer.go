// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package timer runs a function periodically and waits for a time, each in the one way
// that all packages use.
package timer

import (
	"context"
	"sync/atomic"
	"time"
)

// Every calls a function each time a period has passed since the last call returned,
// until the caller calls stop. Stop does not wait for a call that is under way.
//
// It is a timer and not a goroutine, because a process may have many informers. A stopped
// timer may stay in the runtime's heap until it would have fired, but it drops its
// reference to the function at once.
func Every(period time.Duration, call func()) (stop func()) {
	var current atomic.Pointer[func()]
	current.Store(&call)
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(period, func() {
		<-ready
		if call := current.Load(); call != nil {
			(*call)()
			timer.Reset(period)
		}
	})
	close(ready)
	return func() {
		current.Store(nil)
		timer.Stop()
	}
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
