// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/timer"
)

// roundsAtOnce is how many resources are verified at once on a schedule.
const roundsAtOnce = 4

// verifyAll verifies and repairs all resources of all members in rounds, each of which
// takes a given time, until ctx ends. It returns after the last verification has ended.
func (f *Fleet) verifyAll(ctx context.Context, every time.Duration) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, roundsAtOnce)
	for {
		began, round := time.Now(), f.round()
		for i, due := range round {
			// The first one is not at the start: the clusters may have just joined.
			at := began.Add(time.Duration(float64(every) * float64(i+1) / float64(len(round)+1)))
			if timer.Sleep(ctx, time.Until(at)) != nil {
				return
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			running.Go(func() {
				defer func() { <-slots }()
				due.verify(ctx)
			})
		}
		if timer.Sleep(ctx, max(time.Until(began.Add(every)), time.Second)) != nil {
			return
		}
	}
}

// visit is one resource of one member in a round.
type visit struct {
	member   *Member
	resource schema.GroupResource
}

// round returns all resources that can be verified now, in a random order, so that the
// resources of a cluster are spread over the round.
func (f *Fleet) round() []visit {
	var all []visit
	for _, m := range f.Members() {
		for _, r := range m.Verifiable() {
			all = append(all, visit{m, r})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// verify verifies the resource, unless it is not mirrored any more.
func (v visit) verify(ctx context.Context) {
	if _, err := v.member.verifiable(v.resource); err != nil {
		return
	}
	if _, err := v.member.Verify(ctx, v.resource, VerifyOptions{Repair: true}); err != nil && ctx.Err() == nil {
		v.member.logger.Warn("cannot compare the copy with the cluster", "resource", v.resource.String(), "err", err)
	}
}
