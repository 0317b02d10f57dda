// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"testing"
	"time"
)

// TestClock_followsTheDates sends the Dates of a server whose clock is an hour ahead, and which
// is then set.
func TestClock_followsTheDates(t *testing.T) {
	c := clock{base: time.Now()}
	if _, known := c.now(); known {
		t.Error("the time is known before there was a Date")
	}
	server := c.base.Add(time.Hour).UTC()
	ask := func(at, took time.Duration) time.Duration {
		t.Helper()
		c.learn(server.Add(at+took/2).Truncate(time.Second), at, at+took)
		return time.Unix(0, c.epoch.Load()).Sub(server)
	}
	for i := range 50 {
		if wrong := ask(time.Duration(i)*1037*time.Millisecond, 10*time.Millisecond).Abs(); wrong > time.Second {
			t.Fatalf("after response %d the clock is %s wrong", i, wrong)
		}
	}
	if wrong := ask(time.Minute, 10*time.Millisecond).Abs(); wrong > 50*time.Millisecond {
		t.Errorf("after 50 responses the clock is %s wrong", wrong)
	}
	if wrong := ask(2*time.Minute, 4*time.Second).Abs(); wrong > 50*time.Millisecond {
		t.Errorf("a slow response moves the clock by %s", wrong)
	}
	server = server.Add(-2 * time.Hour)
	if wrong := ask(3*time.Minute, 10*time.Millisecond).Abs(); wrong > time.Second {
		t.Errorf("after the server's clock was set, the clock is %s wrong", wrong)
	}
}
