// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

import "time"

// Sweep sweeps now.
func (c *Cache) Sweep() {
	c.sweeping.Lock()
	c.swept = time.Time{}
	c.sweeping.Unlock()
	c.sweep()
}

// Kept returns the size of the kept values of all caches.
func Kept() int64 { return memory.kept.Load() }
