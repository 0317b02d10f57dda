// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	// recorderGrace is how long after its due time the last change may arrive.
	recorderGrace = time.Minute
	// recorderLead is how long before the first change is due the sender learns of it.
	recorderLead = 50 * time.Millisecond
	// recorderQuiet is how long no change may have arrived for [Recorder.Run] to return.
	recorderQuiet = 100 * time.Millisecond
)

// Recorder records the latencies of the changes that a reader receives from a
// [Stream]. It holds 8 bytes per change, allocated before the first.
type Recorder struct {
	// first is the version of the first change, which is due at start.
	first     int
	pace      Pace
	start     atomic.Pointer[time.Time]
	received  atomic.Int64
	latencies Latencies
	// last is closed when the last change has been received.
	last chan struct{}
}

// NewRecorder returns a recorder of n changes that begin with version first.
func NewRecorder(first, n int, p Pace) *Recorder {
	return &Recorder{first: first, pace: p, latencies: make(Latencies, n), last: make(chan struct{})}
}

// Run lets the sender at the other end of conn start, and waits until the last change
// has been received. A reader that falls far behind skips some changes: they count as
// received when all are. Run returns how many were skipped.
func (r *Recorder) Run(conn io.Writer) (skipped int, err error) {
	start := time.Now().Add(recorderLead)
	r.start.Store(&start)
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(start.UnixNano()))); err != nil {
		return 0, err
	}
	select {
	case <-r.last:
	case <-time.After(time.Until(r.pace.Due(start, len(r.latencies))) + recorderGrace):
		return 0, fmt.Errorf("did not keep up: received %d of %d changes %v after the last was due", r.received.Load(), len(r.latencies), recorderGrace)
	}
	for n := r.received.Load(); ; n = r.received.Load() {
		time.Sleep(recorderQuiet)
		if r.received.Load() == n {
			break
		}
	}
	for k := range r.latencies {
		if r.latencies[k] == 0 {
			r.latencies[k] = time.Since(r.pace.Due(start, k))
			skipped++
		}
	}
	return skipped, nil
}

// Received records a change. Its latency begins when the change was due, not when it
// was sent: a reader that delays the sender is charged for that. One goroutine calls
// Received.
func (r *Recorder) Received(version uint64) {
	k := int(version) - r.first
	r.latencies[k] = time.Since(r.pace.Due(*r.start.Load(), k))
	r.received.Add(1)
	if k == len(r.latencies)-1 {
		close(r.last)
	}
}

// Next returns the version after the last change that r records.
func (r *Recorder) Next() int { return r.first + len(r.latencies) }

// Latencies returns the latency of every change, in order, after [Recorder.Run].
func (r *Recorder) Latencies() Latencies { return r.latencies }
