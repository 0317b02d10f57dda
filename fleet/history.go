// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/wire"
)

const (
	// trimEvery is how often the size of the history is checked.
	trimEvery = 5 * time.Second
	// historyAge is how long a change is kept if the history is within its bound.
	historyAge = 5 * time.Minute
)

// trimHistory keeps the history, which is the changes in all logs, within a bound in bytes
// until ctx ends. It drops changes by their age, so that every log reaches back equally
// far.
func trimHistory(ctx context.Context, bound int64, logs func() []*fanout.Log[*wire.Object]) {
	// age is about the age of the oldest change.
	age, last := time.Duration(0), time.Now()
	for timer.Sleep(ctx, trimEvery) == nil {
		age, last = min(age+time.Since(last), historyAge), time.Now()
		keep := historyAge
		all, bytes := logs(), int64(0)
		for _, log := range all {
			bytes += log.Stats().Bytes
		}
		if bytes > bound {
			age = time.Duration(0.8 * float64(age) * float64(bound) / float64(bytes))
			keep = age
		}
		for _, log := range all {
			log.Trim(keep)
		}
	}
}
