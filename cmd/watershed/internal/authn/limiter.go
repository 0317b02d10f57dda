// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// addressRate and addressBurst limit how many unknown tokens per second are checked
	// for one address.
	addressRate, addressBurst = 10, 50
	// clusterRate and clusterBurst limit how many unknown tokens per second are checked
	// at one cluster.
	clusterRate, clusterBurst = 200, 200
	// maxAddresses is how many addresses are remembered. Each takes about 350 bytes. An
	// address that is forgotten has its full burst again; clusterRate still holds.
	maxAddresses = 4096
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
	mu        sync.Mutex
	cluster   bucket
	addresses *lru[string, *bucket]
}

func newLimiter() *limiter {
	return &limiter{addresses: newLRU[string, *bucket](maxAddresses, maxAddresses)}
}

// allow reports whether an unknown token from the address may be checked now.
func (l *limiter) allow(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.addresses.get(address)
	if !ok {
		b = &bucket{}
		l.addresses.put(address, b, 1)
	}
	if !b.take(now, addressRate, addressBurst) {
		return false
	}
	if !l.cluster.take(now, clusterRate, clusterBurst) {
		b.left++
		return false
	}
	return true
}

// refund takes back the count of a token that was valid. Many users can have one address,
// such as that of a proxy: only refused tokens count against it.
func (l *limiter) refund(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.addresses.get(address); ok {
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
