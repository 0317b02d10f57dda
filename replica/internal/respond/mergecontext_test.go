// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

// TestUntil_concurrently has many watches begin and end.
func TestUntil_concurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		for range 20 {
			never, ends := t.Context(), t.Context()
			ends, end := context.WithCancel(ends)
			for i := range 50 {
				running.Go(func() {
					ctx, release := Until(t.Context(), []context.Context{never, ends})
					defer release()
					if i%2 == 0 {
						<-ctx.Done()
					}
				})
			}
			running.Go(end)
		}
		running.Wait()
		if ctx, release := Until(t.Context(), nil); ctx != t.Context() {
			t.Error("a watch without an end has a context of its own")
			release()
		}
	})
}
