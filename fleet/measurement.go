// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"sync"
	"time"
)

const (
	// measurementShare limits the share of one processor that measuring a member's memory
	// takes: a measurement is used again for this many times as long as it took.
	measurementShare = 50
	// measurementAge is how long a measurement is used again at least.
	measurementAge = time.Second
)

// measurement is the memory of a member's objects when it was last measured. All methods are
// safe for concurrent use.
type measurement struct {
	mu    sync.Mutex
	bytes int64
	// until is when the measurement is too old to be used again.
	until time.Time
}

// Memory returns about how many bytes the member's objects and the logs of its informers
// take. It walks all objects, some 50 ns each. If it is called often it returns the last
// result, so that the walks take at most a fiftieth of one processor. Memory that members
// share is not included.
func (m *Member) Memory() int64 {
	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	if began := time.Now(); began.After(m.memory.until) {
		m.memory.bytes = m.measure()
		m.memory.until = time.Now().Add(max(measurementAge, measurementShare*time.Since(began)))
	}
	return m.memory.bytes
}

// measure returns the memory of the informers.
func (m *Member) measure() int64 {
	m.mu.Lock()
	informers := make([]*informer, 0, len(m.mirrors))
	for _, x := range m.mirrors {
		informers = append(informers, x.informer)
	}
	m.mu.Unlock()
	sum := int64(0)
	for _, i := range informers {
		s := i.Stats()
		sum += s.ObjectBytes + s.KeyBytes + s.IndexBytes + s.LogBytes
	}
	return sum
}
