// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"sync"
	"time"
)

// clockStep is by how much a clock may be late.
const clockStep = 100 * time.Millisecond

// Clock wakes watches at a moment. Those of about the same moment share a timer and a
// channel: a context with a deadline would cost each idle watch 600 bytes. The zero value
// is ready to use; all methods are safe for concurrent use. It costs 300 bytes for each
// step in which a watch is due.
type Clock struct {
	mu  sync.Mutex
	due map[int64]chan struct{}
}

// At returns a channel that is closed at a moment, or up to clockStep later.
func (c *Clock) At(moment time.Time) <-chan struct{} {
	step := (moment.UnixNano() + int64(clockStep) - 1) / int64(clockStep)
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := c.due[step]; done != nil {
		return done
	}
	if c.due == nil {
		c.due = map[int64]chan struct{}{}
	}
	done := make(chan struct{})
	c.due[step] = done
	time.AfterFunc(time.Until(time.Unix(0, step*int64(clockStep))), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.due, step)
		close(done)
	})
	return done
}
