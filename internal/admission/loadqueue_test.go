// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package admission

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestLoadQueue_wantedFirst checks the order in which waiting mirrors are admitted.
func TestLoadQueue_wantedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoadQueue(1)
		leave, err := l.Enter(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var wanted [4]atomic.Bool
		var order []int
		var running sync.WaitGroup
		given, cancel := context.WithCancel(t.Context())
		for i := range wanted {
			ctx := t.Context()
			if i == 1 {
				ctx = given
			}
			running.Go(func() {
				leave, err := l.Enter(ctx, wanted[i].Load)
				if err == nil {
					order = append(order, i) // one is admitted at a time
					leave()
				} else if i != 1 {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wanted[2].Store(true)
		cancel()
		synctest.Wait()
		leave()
		running.Wait()
		if !slices.Equal(order, []int{2, 0, 3}) {
			t.Errorf("admitted in the order %v", order)
		}
		if l.free != 1 || l.waiting != nil {
			t.Errorf("%d free, %d waiting", l.free, len(l.waiting))
		}
	})
}
