// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkEvery is how often the memory of the process is checked while values are kept, in
	// addition to each garbage collection.
	checkEvery = time.Second
	// limitShare is the part of GOMEMLIMIT that the kept values of all caches may take.
	limitShare = 4
	// scarceAbove is the part of GOMEMLIMIT above which memory is scarce, in percent.
	scarceAbove = 85
	// halvings limits how often T is halved.
	halvings = 6
)

// memory is the memory of the process, which all caches share.
var memory processMemory

type processMemory struct {
	// kept is the size of all kept values.
	kept atomic.Int64
	// scarce is how often T is halved. Each check above the limit adds one, and each other
	// check removes one.
	scarce atomic.Int32
	// limit is GOMEMLIMIT, 0 before the first check, and gogc GOGC in percent.
	limit, gogc atomic.Int64
	checking    sync.Mutex
	// checked and collections are when the memory was checked last. checking guards them.
	checked     time.Time
	collections uint64

	// mu guards the fields below. It is taken after the mu of a cache.
	mu sync.Mutex
	// active has the caches that keep values.
	active map[*Cache]struct{}
	// watching means that collected is called after the next collection.
	watching bool
}

// join adds a cache that keeps values.
func (m *processMemory) join(c *Cache) {
	m.check()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active == nil {
		m.active = map[*Cache]struct{}{}
	}
	m.active[c] = struct{}{}
	m.watchLocked()
}

// leave removes a cache that does not keep values any more.
func (m *processMemory) leave(c *Cache) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.active, c)
}

// watchLocked makes the runtime call collected after the next collection.
func (m *processMemory) watchLocked() {
	if m.watching || len(m.active) == 0 {
		return
	}
	m.watching = true
	runtime.AddCleanup(&struct{ _ [16]byte }{}, (*processMemory).collected, m)
}

// collected checks the memory after a collection, and makes the caches drop values if it is scarce.
func (m *processMemory) collected() {
	m.check()
	m.mu.Lock()
	m.watching = false
	m.watchLocked()
	var active []*Cache
	if m.scarce.Load() > 0 || !m.fits(0) {
		for c := range m.active {
			active = append(active, c)
		}
	}
	m.mu.Unlock()
	for _, c := range active {
		c.sweep()
	}
}

// The metrics of the runtime that check reads.
const (
	limitMetric = iota
	gogcMetric
	cyclesMetric
	totalMetric
	releasedMetric
	freeMetric
	objectsMetric
	liveMetric
	metricCount
)

func samples() []metrics.Sample {
	s := make([]metrics.Sample, metricCount)
	s[limitMetric].Name = "/gc/gomemlimit:bytes"
	s[gogcMetric].Name = "/gc/gogc:percent"
	s[cyclesMetric].Name = "/gc/cycles/total:gc-cycles"
	s[totalMetric].Name = "/memory/classes/total:bytes"
	s[releasedMetric].Name = "/memory/classes/heap/released:bytes"
	s[freeMetric].Name = "/memory/classes/heap/free:bytes"
	s[objectsMetric].Name = "/memory/classes/heap/objects:bytes"
	s[liveMetric].Name = "/gc/heap/live:bytes"
	return s
}

// check compares the memory that a collection would leave with GOMEMLIMIT. It does so once for
// each collection and each second.
func (m *processMemory) check() {
	m.checking.Lock()
	defer m.checking.Unlock()
	s := samples()
	metrics.Read(s)
	value := func(i int) uint64 { return s[i].Value.Uint64() }
	since := time.Since(m.checked)
	if value(cyclesMetric) == m.collections && since >= 0 && since < checkEvery*9/10 {
		return
	}
	m.checked, m.collections = time.Now(), value(cyclesMetric)
	m.limit.Store(int64(min(value(limitMetric), math.MaxInt64)))
	gogc := value(gogcMetric)
	if gogc > math.MaxInt32 { // it is off
		gogc = 0
	}
	m.gogc.Store(int64(gogc))
	garbage := max(value(objectsMetric), value(liveMetric)) - value(liveMetric)
	used := value(totalMetric) - value(releasedMetric) - value(freeMetric) - garbage
	switch scarce := m.scarce.Load(); {
	case used > value(limitMetric)/100*scarceAbove:
		m.scarce.Store(min(scarce+1, halvings))
	case scarce > 0:
		m.scarce.Store(scarce - 1)
	}
}

// ready checks the memory for the first time.
func (m *processMemory) ready() {
	if m.limit.Load() == 0 {
		m.check()
	}
}

// headroom returns how many bytes of heap a byte that is held takes.
func (m *processMemory) headroom() float64 {
	m.ready()
	return 1 + float64(m.gogc.Load())/100
}

// fits reports whether another value of a size may be kept. What may be kept is halved with T.
func (m *processMemory) fits(size int) bool {
	m.ready()
	return m.kept.Load()+int64(size) <= m.limit.Load()/limitShare>>m.scarce.Load()
}
