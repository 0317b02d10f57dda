// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ProgressPiece is how many bytes count as progress: a client that reads this many before
// the time limit is slow, and one that reads fewer is cut off. The kernel reports progress
// in steps of its own, which the listener keeps small.
const ProgressPiece = 32 << 10

// Response is an [http.ResponseWriter] that is watched for progress. The tracker looks at
// it from outside, because a deadline for every write would cost a watch more than the
// write.
type Response struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// status is the code of the response, 0 before it is known.
	status int
	// since is when the write of the current piece began, 0 if none is being written.
	since atomic.Int64
	owner *Tracker
	// uses counts calls of Begin without End. owner.mu guards it.
	uses int
}

// Tracker has all responses that are being written. The zero value is ready to use. All
// methods are safe for concurrent use.
type Tracker struct {
	mu  sync.Mutex
	all map[*Response]struct{}
}

// Begin adds a response, or returns w if it is one already. The caller calls End.
func (p *Tracker) Begin(w http.ResponseWriter) *Response {
	one, ok := w.(*Response)
	if !ok {
		one = &Response{w: w, control: http.NewResponseController(w), owner: p}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[*Response]struct{}{}
	}
	one.uses++
	p.all[one] = struct{}{}
	return one
}

// End undoes one call of Begin.
func (p *Response) End() {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	if p.uses--; p.uses == 0 {
		delete(p.owner.all, p)
	}
}

// Header returns the headers of the response.
func (p *Response) Header() http.Header { return p.w.Header() }

// WriteHeader sends the status.
func (p *Response) WriteHeader(code int) {
	if p.status == 0 {
		p.status = code
	}
	p.w.WriteHeader(code)
}

// Status returns the code of the response.
func (p *Response) Status() int { return cmp.Or(p.status, http.StatusOK) }

// Unwrap lets [http.ResponseController] find the connection.
func (p *Response) Unwrap() http.ResponseWriter { return p.w }

// Write writes to the client, piece by piece so that a long write shows its progress.
func (p *Response) Write(b []byte) (int, error) {
	defer p.since.Store(0)
	n := 0
	for {
		p.since.Store(time.Now().UnixNano())
		piece := b[n:min(len(b), n+ProgressPiece)]
		m, err := p.w.Write(piece)
		n += m
		if err != nil || n >= len(b) {
			return n, err
		}
	}
}

// FlushError sends what was written.
func (p *Response) FlushError() error {
	p.since.Store(time.Now().UnixNano())
	defer p.since.Store(0)
	return p.control.Flush()
}

// Limit bounds how long net/http may take to write the rest, at most a few KB, after the
// handler has returned.
func (p *Response) Limit(patience time.Duration) {
	_ = p.control.SetWriteDeadline(time.Now().Add(patience))
}

// Unlimit removes the limit that the previous response on an HTTP/1 connection has left.
func (p *Response) Unlimit() { _ = p.control.SetWriteDeadline(time.Time{}) }

// Len returns how many responses are being written.
func (p *Tracker) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

// Cut ends the responses whose client has made no progress for the given time.
func (p *Tracker) Cut(patience time.Duration) {
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
