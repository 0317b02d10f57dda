// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

import (
	"math"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkEvery is how often the memory of the process is checked while values are kept, in
	// addition to each garbage collection.
	checkEvery = time.Second
	// checkAgain is how long a check is as good as another one, so that one collection does not
	// cause a check by each cache.
	checkAgain = time.Second / 100
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
	// limit is GOMEMLIMIT, and gogc GOGC in percent, both 0 before the first check.
	limit, gogc atomic.Int64
	checking    sync.Mutex
	// checked and collections are when the memory was checked last. checking guards them.
	checked     time.Time
	collections uint64
}

// check compares the memory that a collection would leave with GOMEMLIMIT. It does so once for
// each collection and each second.
func (m *processMemory) check() {
	m.checking.Lock()
	defer m.checking.Unlock()
	since := time.Since(m.checked)
	if since >= 0 && since < checkAgain {
		return
	}
	v := runtimeMetrics("/gc/cycles/total:gc-cycles", "/gc/gomemlimit:bytes", "/gc/gogc:percent", "/gc/heap/live:bytes",
		"/memory/classes/heap/objects:bytes", "/memory/classes/heap/free:bytes",
		"/memory/classes/heap/released:bytes", "/memory/classes/total:bytes")
	collections, limit, gogc, live, objects, free, released, total := v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
	if collections == m.collections && since >= 0 && since < checkEvery*9/10 {
		return
	}
	if gogc > math.MaxInt32 { // it is off
		gogc = 0
	}
	m.checked, m.collections = time.Now(), collections
	m.limit.Store(int64(min(limit, math.MaxInt64)))
	m.gogc.Store(int64(gogc))
	garbage := max(objects, live) - live
	switch scarce := m.scarce.Load(); {
	case total-released-free-garbage > limit/100*scarceAbove:
		m.scarce.Store(min(scarce+1, halvings))
	case scarce > 0:
		m.scarce.Store(scarce - 1)
	}
}

// runtimeMetrics returns the values of metrics of the Go runtime.
func runtimeMetrics(names ...string) []uint64 {
	samples, values := make([]metrics.Sample, len(names)), make([]uint64, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	for i := range samples {
		values[i] = samples[i].Value.Uint64()
	}
	return values
}

// fits reports whether another value of a size may be kept. What may be kept is halved with T.
func (m *processMemory) fits(size int) bool {
	return m.kept.Load()+int64(size) <= m.limit.Load()/limitShare>>m.scarce.Load()
}
