// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// pulsePiece is how many bytes count as progress: a client that takes so many within
// [Options.Patience] is slow, and one that takes fewer is cut off. The kernel shows
// progress in steps of its own: see [ListenConfig].
const pulsePiece = 32 << 10

// pulse is the response to one request, watched for progress. Every response is one, whatever
// writes it. It is observed from outside, because a deadline for every write would cost
// a watch more than the write.
type pulse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// since is when the piece that is being written was begun, 0 if none is.
	since atomic.Int64
	owner *pulses
	// uses counts begin without end, and is guarded by owner.mu.
	uses int
}

// pulses are all responses that are being written.
type pulses struct {
	mu  sync.Mutex
	all map[*pulse]struct{}
}

// begin adds a response, or returns the pulse that w is already. The caller ends it.
func (p *pulses) begin(w http.ResponseWriter) *pulse {
	one, ok := w.(*pulse)
	if !ok {
		one = &pulse{w: w, control: http.NewResponseController(w), owner: p}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[*pulse]struct{}{}
	}
	one.uses++
	p.all[one] = struct{}{}
	return one
}

// end undoes one begin.
func (p *pulse) end() {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if p.uses--; p.uses == 0 {
		delete(p.owner.all, p)
	}
}

// Header returns the headers of the response.
func (p *pulse) Header() http.Header { return p.w.Header() }

// WriteHeader sends the status.
func (p *pulse) WriteHeader(code int) { p.w.WriteHeader(code) }

// Unwrap is for [http.ResponseController].
func (p *pulse) Unwrap() http.ResponseWriter { return p.w }

// Write writes to the client, piece by piece so that a long write shows its progress.
func (p *pulse) Write(b []byte) (int, error) {
	defer p.since.Store(0)
	n := 0
	for {
		p.since.Store(time.Now().UnixNano())
		piece := b[n:min(len(b), n+pulsePiece)]
		m, err := p.w.Write(piece)
		n += m
		if err != nil || n >= len(b) {
			return n, err
		}
	}
}

// FlushError is flush, for [http.ResponseController].
func (p *pulse) FlushError() error { return p.flush() }

// flush sends what was written.
func (p *pulse) flush() error {
	p.since.Store(time.Now().UnixNano())
	defer p.since.Store(0)
	return p.control.Flush()
}

// limit bounds how long net/http may take to write what is left when the handler has
// returned, at most a few KB.
func (p *pulse) limit(patience time.Duration) {
	_ = p.control.SetWriteDeadline(time.Now().Add(patience))
}

// unlimit takes back the limit of the response before this one on an HTTP/1 connection.
func (p *pulse) unlimit() { _ = p.control.SetWriteDeadline(time.Time{}) }

// cut ends the responses whose client has made no progress for too long.
func (p *pulses) cut(patience time.Duration) {
	limit := time.Now().Add(-patience).UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.all {
		if since := one.since.Load(); since != 0 && since < limit {
			// The write fails, and its goroutine ends the response.
			_ = one.control.SetWriteDeadline(time.Unix(1, 0))
		}
	}
}
