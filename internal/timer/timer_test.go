// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package timer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

func TestEvery_callsUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		stop := timer.Every(time.Minute, func() {
			at = append(at, time.Since(began))
			time.Sleep(10 * time.Second) // the next period begins after the call
		})
		time.Sleep(2*time.Minute + 30*time.Second)
		stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(at) != 2 || at[0] != time.Minute || at[1] != 2*time.Minute+10*time.Second {
			t.Errorf("called after %v, want after 1m and 2m10s", at)
		}
	})
}

func TestSleep_endsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		began := time.Now()
		for _, wait := range []time.Duration{-1, 0, time.Second} {
			if err := timer.Sleep(ctx, wait); err != nil {
				t.Errorf("sleep for %s: %v", wait, err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("slept for %s, want 1s", took)
		}
		time.AfterFunc(time.Second, func() { cancel(cause) })
		for _, wait := range []time.Duration{time.Hour, 1, 0} {
			if err := timer.Sleep(ctx, wait); !errors.Is(err, cause) {
				t.Errorf("sleep for %s while the context ends: %v", wait, err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("slept until %s, want 2s", took)
		}
	})
}
