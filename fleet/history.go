// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// forgetEvery is how often the size of the history is checked.
	forgetEvery = 5 * time.Second
	// historyAge is how long a change is kept if the history is within its bound.
	historyAge = 5 * time.Minute
)

// forget keeps the history within its bound until ctx ends. It drops changes by their
// age, so that the history of every feed reaches back equally far.
func (f *Fleet) forget(ctx context.Context) {
	// age is about the age of the oldest change.
	age, last := time.Duration(0), time.Now()
	for timer.Sleep(ctx, forgetEvery) == nil {
		age, last = min(age+time.Since(last), historyAge), time.Now()
		keep := historyAge
		feeds, bytes := f.feeds(), int64(0)
		for _, feed := range feeds {
			bytes += feed.log.Stats().Bytes
		}
		if bytes > f.opts.History {
			age = time.Duration(0.8 * float64(age) * float64(f.opts.History) / float64(bytes))
			keep = age
		}
		for _, feed := range feeds {
			feed.log.Trim(keep)
		}
	}
}

func (f *Fleet) feeds() []*Feed {
	var all []*Feed
	for _, m := range f.Members() {
		m.mu.Lock()
		for _, x := range m.mirrors {
			if x.feed != nil {
				all = append(all, x.feed)
			}
		}
		m.mu.Unlock()
	}
	return all
}
