// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"testing"
	"testing/synctest"
	"time"
)

// A clock is never early and at most a step late, watches of one moment share a channel,
// and nothing is left when all have been woken.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		start := time.Now()
		for _, wait := range []time.Duration{
			-time.Minute, 0, 1, 17 * time.Millisecond, clockStep, time.Minute, time.Minute + 3,
		} {
			moment := start.Add(wait)
			first, second := c.At(moment), c.At(moment)
			if first != second {
				t.Errorf("after %v: two channels", wait)
			}
			go func() {
				<-first
				if late := time.Since(moment); wait >= 0 && (late < 0 || late > clockStep) {
					t.Errorf("after %v: it is %v late", wait, late)
				}
			}()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(c.due) != 0 {
			t.Errorf("%d steps are left", len(c.due))
		}
	})
}
