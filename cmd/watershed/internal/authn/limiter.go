// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"net/netip"
	"sync"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/lru"
)

const (
	// addressRate and addressBurst limit how many unknown tokens per second are checked
	// for one address.
	addressRate, addressBurst = 10, 50
	// clusterRate and clusterBurst limit how many unknown tokens per second are checked
	// at one cluster.
	clusterRate, clusterBurst = 200, 200
	// maxSources is how many sources are remembered. Each takes about 350 bytes. A source
	// that is forgotten has its full burst again; clusterRate still holds.
	maxSources = 4096
)

// bucket is a token bucket.
type bucket struct {
	left float64
	at   time.Time
}

// take takes one token, if there is one.
func (b *bucket) take(now time.Time, rate, burst float64) bool {
	if b.at.IsZero() {
		b.left = burst
	} else {
		b.left = min(burst, b.left+now.Sub(b.at).Seconds()*rate)
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// limiter limits how often unknown tokens are checked, so that a caller that sends random
// tokens cannot pass them on to the cluster as a flood of TokenReviews.
type limiter struct {
	mu sync.Mutex
	// buckets has a bucket for each source, and one for each cluster: a source without an address.
	buckets *lru.Map[source, *bucket]
}

// source is where tokens come from, and the name of the absent cluster that they are for. A
// limiter of a cluster that exists needs no name.
type source struct{ absent, address string }

func newLimiter() *limiter {
	return &limiter{buckets: lru.New[source](maxSources, maxSources, func(*bucket) int { return 1 })}
}

// allow reports whether an unknown token from a source may be checked now.
func (l *limiter) allow(from source, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucketLocked(from)
	if !b.take(now, addressRate, addressBurst) {
		return false
	}
	if !l.bucketLocked(source{absent: from.absent}).take(now, clusterRate, clusterBurst) {
		b.left++
		return false
	}
	return true
}

// bucketLocked returns the bucket of a source.
func (l *limiter) bucketLocked(from source) *bucket {
	b, ok := l.buckets.Get(from)
	if !ok {
		b = &bucket{}
		l.buckets.Put(from, b)
	}
	return b
}

// refund takes back the count of a token that was valid. Many users can have one address,
// such as that of a proxy: only refused tokens count against it.
func (l *limiter) refund(from source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.buckets.Get(from); ok {
		b.left = min(b.left+1, addressBurst)
	}
}

// network returns the part of a remote address that one user controls: an IPv4 address, or
// the first 64 bits of an IPv6 address.
func network(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	ip := a.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.Prefix(64)
	if err != nil {
		return ""
	}
	return prefix.String()
}
