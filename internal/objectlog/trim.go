// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectlog

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// TrimEvery is how often [Trim] checks the size of the logs.
	TrimEvery = 5 * time.Second
	// MaxAge is how long a change is kept if the logs are within their bound.
	MaxAge = 5 * time.Minute
)

// Trim keeps the changes in all logs within a bound in bytes, which may change, until ctx
// ends. It drops changes by their age, so that every log reaches back equally far.
func Trim[T any](ctx context.Context, bound func() int64, logs func() []*fanout.Log[T]) {
	// age is about the age of the oldest change.
	age, last := time.Duration(0), time.Now()
	for timer.Sleep(ctx, TrimEvery) == nil {
		age, last = min(age+time.Since(last), MaxAge), time.Now()
		keep := MaxAge
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
