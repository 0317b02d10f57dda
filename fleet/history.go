// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// forgetEvery is how often the history is looked at, historyAge how old a change
	// becomes where it need not go before.
	forgetEvery, historyAge = 5 * time.Second, 5 * time.Minute
)

// forget keeps the history within its bound until ctx ends. What is too much goes by
// age, so that what is left is as long everywhere.
func (f *Fleet) forget(ctx context.Context) {
	// age is about that of the oldest change there is.
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
