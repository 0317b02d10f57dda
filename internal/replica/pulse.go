// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// pulse is an answer that is being written. It is looked at from outside, because a
// deadline for every write would cost a watch more than the write.
type pulse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// since is when the write that is under way began, 0 if none is.
	since atomic.Int64
	owner *pulses
}

// pulses are all answers that are being written.
type pulses struct {
	mu  sync.Mutex
	all map[*pulse]struct{}
}

// begin adds an answer. The caller ends it.
func (p *pulses) begin(w http.ResponseWriter) *pulse {
	one := &pulse{w: w, control: http.NewResponseController(w), owner: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[*pulse]struct{}{}
	}
	p.all[one] = struct{}{}
	return one
}

func (p *pulse) end() {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	delete(p.owner.all, p)
}

// Write writes to the client.
func (p *pulse) Write(b []byte) (int, error) {
	p.since.Store(time.Now().UnixNano())
	defer p.since.Store(0)
	return p.w.Write(b)
}

// flush sends what was written.
func (p *pulse) flush() error {
	p.since.Store(time.Now().UnixNano())
	defer p.since.Store(0)
	return p.control.Flush()
}

// cut ends the answers whose client has not read for too long.
func (p *pulses) cut(patience time.Duration) {
	limit := time.Now().Add(-patience).UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.all {
		if since := one.since.Load(); since != 0 && since < limit {
			// The write fails, and its goroutine ends the answer.
			_ = one.control.SetWriteDeadline(time.Unix(1, 0))
		}
	}
}
