// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/watershed-project/watershed/replica"
)

const (
	// sampleOneIn and sampleGap limit the comparisons of requests of a known kind: about one
	// in 100, and at most one per second, so that their number does not grow with the load.
	sampleOneIn = 100
	sampleGap   = time.Second
	// generation is how many kinds of requests each of two generations remembers, in about 20
	// bytes each. A kind that is forgotten is compared again.
	generation = 8192
)

// sampler selects the local decisions that are compared with the cluster's: the first of each
// kind, which is a user, a verb and a resource, and a few of the others.
type sampler struct {
	mu sync.Mutex
	// recent and older have the hashes of the kinds that were seen. When recent is full, it
	// becomes older.
	recent, older map[uint64]struct{}
	seed          maphash.Seed
	last          time.Time // of a comparison of a known kind
}

func newSampler() *sampler {
	return &sampler{seed: maphash.MakeSeed(), recent: map[uint64]struct{}{}}
}

// kindOf returns the hash of the kind of a request.
func (s *sampler) kindOf(user string, a *replica.Attributes) uint64 {
	type kind struct{ user, verb, group, resource, subresource string }
	return maphash.Comparable(s.seed, kind{user, a.Verb, a.Group, a.Resource, a.Subresource})
}

// selects reports whether a decision of this kind is to be compared. The kind counts as seen
// from then on.
func (s *sampler) selects(kind uint64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.recent[kind]; !ok {
		_, known := s.older[kind]
		if len(s.recent) >= generation {
			s.recent, s.older = map[uint64]struct{}{}, s.recent
		}
		s.recent[kind] = struct{}{}
		if !known {
			return true
		}
	}
	if rand.IntN(sampleOneIn) != 0 || now.Sub(s.last) < sampleGap {
		return false
	}
	s.last = now
	return true
}

// forget makes the next decision of this kind the first again. It is called for a comparison
// that could not be made.
func (s *sampler) forget(kind uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recent, kind)
	delete(s.older, kind)
}
