// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verify

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/internal/timer"
)

// roundsAtOnce is how many resources are verified at once on a schedule.
const roundsAtOnce = 4

// Rounds verifies resources in rounds, each of which takes a given time, until ctx ends. The
// function "round" returns a function for each resource that can be verified now. Rounds calls them
// in a random order, so that the resources of a cluster are spread over the round. It returns after
// the last verification has ended.
func Rounds(ctx context.Context, every time.Duration, round func() []func(context.Context)) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(admission.Slots, roundsAtOnce)
	for {
		began, all := time.Now(), round()
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for i, verify := range all {
			// The first one is not at the start: the clusters may have just joined.
			at := began.Add(time.Duration(float64(every) * float64(i+1) / float64(len(all)+1)))
			if timer.Sleep(ctx, time.Until(at)) != nil {
				return
			}
			leave, err := slots.Enter(ctx)
			if err != nil {
				return
			}
			running.Go(func() {
				defer leave()
				verify(ctx)
			})
		}
		if timer.Sleep(ctx, max(time.Until(began.Add(every)), time.Second)) != nil {
			return
		}
	}
}
