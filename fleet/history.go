// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// trimEvery is how often the size of the logs is checked.
	trimEvery = 5 * time.Second
	// historyAge is how long a change is kept if the logs are within their bound.
	historyAge = 5 * time.Minute
)

// windows is how many times [Options.Window] the logs of all resources may take together.
// A cluster with many resources could fill the window of each of them.
const windows = 16

// trimLogs keeps the changes in all logs within a bound in bytes, which may change, until ctx
// ends. It drops changes by their age, so that every log reaches back equally far.
func trimLogs[T any](ctx context.Context, bound func() int64, logs func() []*fanout.Log[T]) {
	// age is about the age of the oldest change.
	age, last := time.Duration(0), time.Now()
	for timer.Sleep(ctx, trimEvery) == nil {
		age, last = min(age+time.Since(last), historyAge), time.Now()
		keep := historyAge
		all, bytes := logs(), int64(0)
		for _, log := range all {
			bytes += log.Stats().Bytes
		}
		if limit := bound(); bytes > limit {
			age = time.Duration(0.8 * float64(age) * float64(limit) / float64(bytes))
			keep = age
		}
		for _, log := range all {
			log.Trim(keep)
		}
	}
}
