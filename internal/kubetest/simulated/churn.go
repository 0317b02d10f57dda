// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"context"
	"math/rand/v2"
	"time"
)

// churnTick is how often Churn makes the changes that are due.
const churnTick = 10 * time.Millisecond

// Churn touches random pods of all clusters, perSecond of them in total and evenly paced,
// until ctx ends. It returns how many it touched. If the machine cannot keep up, it falls
// behind and does not make up for it later.
func (s *Server) Churn(ctx context.Context, perSecond int) (changes int) {
	if perSecond <= 0 {
		<-ctx.Done()
		return 0
	}
	tick := time.NewTicker(churnTick)
	defer tick.Stop()
	last := time.Now()
	due := 0.0
	for {
		select {
		case <-ctx.Done():
			return changes
		case now := <-tick.C:
			// At most the changes of a tenth of a second at once.
			due += min(now.Sub(last).Seconds(), 0.1) * float64(perSecond)
			last = now
		}
		for ; due >= 1; due-- {
			if s.touchAny() {
				changes++
			}
		}
	}
}

// touchAny touches one random pod. It returns false if it finds only deleted ones.
func (s *Server) touchAny() bool {
	const attempts = 100
	for range attempts {
		c := s.clusters[rand.IntN(len(s.clusters))]
		if c.Touch(rand.IntN(len(c.pods))) != 0 {
			return true
		}
	}
	return false
}
