// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package histogram_test

import (
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/histogram"
)

func TestHistogram(t *testing.T) {
	bounds := []time.Duration{time.Millisecond, time.Second}
	h := histogram.New(bounds)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, d := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, time.Second, time.Minute} {
				h.Observe(d)
			}
		})
	}
	all.Wait()
	want := histogram.Snapshot{
		Bounds:  bounds,
		Buckets: []uint64{8, 16},
		Count:   20,
		Sum:     4 * (time.Minute + time.Second + 2*time.Millisecond + 1),
	}
	expect.Equal(t, h.Snapshot(), want)

	var sum histogram.Snapshot
	sum.Add(want)
	sum.Add(want)
	expect.Equal(t, sum, histogram.Snapshot{Bounds: bounds, Buckets: []uint64{16, 32}, Count: 40, Sum: 2 * want.Sum})

	var none *histogram.Histogram
	none.Observe(time.Second)
	expect.Equal(t, none.Snapshot(), histogram.Snapshot{})
}
