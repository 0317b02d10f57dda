// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is the time of the group cluster: the Date of its responses, continued with the
// monotonic clock of this process. It never reads the wall clock of this machine.
type clock struct {
	// base is a moment of this process.
	base time.Time
	// epoch is the time at base, in nanoseconds since 1970, 0 while it is not known.
	epoch atomic.Int64
}

// elapsed returns the time since base on the monotonic clock.
func (c *clock) elapsed() time.Duration { return time.Since(c.base) }

// now returns the time, and false while it is not known.
func (c *clock) now() (time.Time, bool) {
	epoch := c.epoch.Load()
	return time.Unix(0, epoch).Add(c.elapsed()), epoch != 0
}

// learn sets the clock by a Date, which has been truncated to seconds, of a response to a request
// that was sent and received at two moments since base. The server's time was at least the
// Date when the response was received, and less than a second later than it when the request was
// sent. The clock is moved only if it contradicts that.
func (c *clock) learn(date time.Time, sent, received time.Duration) {
	least, most := date.Add(-received).UnixNano(), date.Add(time.Second-sent).UnixNano()
	epoch := c.epoch.Load()
	if epoch == 0 {
		epoch = least + (most-least)/2
	}
	c.epoch.Store(min(max(epoch, least), most))
}

// dated is a transport that sets a clock by the responses.
type dated struct {
	clock *clock
	next  http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := d.clock.elapsed()
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		d.clock.learn(date, sent, d.clock.elapsed())
	}
	return resp, nil
}
