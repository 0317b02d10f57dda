// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// closeTimeout is how long a client has to accept the rest of a message when the server ends
// a connection that a handler has taken over.
const closeTimeout = time.Second

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
	// reason is that of the status that is the response, "" if it is not a status.
	reason metav1.StatusReason
	// begun, unless it is nil, is called when the code of the response is known.
	begun func()
	// since is when the write of the current piece began, 0 if none is being written.
	since atomic.Int64
	owner *Tracker
	// sent counts the bytes that the tracker has not counted yet. It belongs to the
	// response, so that thousands of watches do not share a counter.
	sent atomic.Uint64
	// written counts all bytes of the body.
	written int64
	// uses counts calls of Begin without End, class is that of the bytes, and cut means that
	// the client was cut off. owner.mu guards them.
	uses  int
	class int
	cut   bool
	// taken is the connection, once the handler has taken it over. owner.mu guards writes of
	// the field.
	taken *connection
}

// connection is a connection that net/http does not know any more.
type connection struct {
	net.Conn
	// mu is held during a call of [Response.Write].
	mu sync.Mutex
	// end ends the work of the handler.
	end context.CancelFunc
}

// Tracker has all responses that are being written. The zero value is ready to use. All
// methods are safe for concurrent use.
type Tracker struct {
	mu  sync.Mutex
	all map[*Response]struct{}
	// ended means that no handler may take over a connection any more, and taken counts
	// those that have.
	ended bool
	taken sync.WaitGroup
	// bytes counts the bytes of responses by class. load is what Cut has found.
	bytes [len(byteClasses)]uint64
	load  Load
}

// byteClasses are the verbs whose bytes are counted apart. The last one is for all other verbs.
var byteClasses = [...]string{"GET", "LIST", "WATCH", "OTHER"}

// blockedAfter is how long a response must wait for its client to count as blocked.
const blockedAfter = time.Second

// Load is the state of the responses when [Tracker.Cut] was last called.
type Load struct {
	// Blocked is how many responses have waited for their client for a second or more, and
	// Longest the longest time.
	Blocked int
	Longest time.Duration
	// Cut counts the clients that were cut off.
	Cut uint64
}

// Load returns the state of the responses.
func (p *Tracker) Load() Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.load
}

// Bytes returns how many bytes were written, by verb: GET, LIST, WATCH and OTHER. It may lack those of the
// last second.
func (p *Tracker) Bytes() map[string]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]uint64{}
	for class, verb := range byteClasses {
		all[verb] = p.bytes[class]
	}
	return all
}

// Classify sets the verb for which the bytes of the response are counted.
func (p *Response) Classify(verb string) {
	class := slices.Index(byteClasses[:], verb)
	if class < 0 {
		class = len(byteClasses) - 1
	}
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	p.class = class
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
		p.owner.bytes[p.class] += p.sent.Swap(0)
		delete(p.owner.all, p)
	}
}

// Header returns the headers of the response.
func (p *Response) Header() http.Header { return p.w.Header() }

// WriteHeader sends the status.
func (p *Response) WriteHeader(code int) {
	first := p.status == 0
	if first {
		p.status = code
	}
	p.w.WriteHeader(code)
	if first && p.begun != nil {
		p.begun()
	}
}

// OnBegin sets a function that is called once, when the header of the response is written.
func (p *Response) OnBegin(f func()) { p.begun = f }

// Reason returns the reason of a response that is an error, "" if it has none.
func (p *Response) Reason() metav1.StatusReason { return p.reason }

// Status returns the code of the response.
func (p *Response) Status() int { return cmp.Or(p.status, http.StatusOK) }

// Written returns how many bytes of the body were written. The goroutine that writes calls it.
func (p *Response) Written() int64 { return p.written }

// Unwrap lets [http.ResponseController] find the connection.
func (p *Response) Unwrap() http.ResponseWriter { return p.w }

// Write writes to the client, piece by piece so that a long write shows its progress.
func (p *Response) Write(b []byte) (int, error) {
	to := io.Writer(p.w)
	if p.taken != nil {
		p.taken.mu.Lock()
		defer p.taken.mu.Unlock()
		to = p.taken.Conn
	}
	defer p.since.Store(0)
	n := 0
	for {
		p.since.Store(time.Now().UnixNano())
		piece := b[n:min(len(b), n+ProgressPiece)]
		m, err := to.Write(piece)
		n += m
		p.sent.Add(uint64(m))
		p.written += int64(m)
		if err != nil || n >= len(b) {
			return n, err
		}
	}
}

// FlushError sends what was written.
func (p *Response) FlushError() error {
	if p.taken != nil {
		return nil // there is no buffer
	}
	p.since.Store(time.Now().UnixNano())
	defer p.since.Store(0)
	return p.control.Flush()
}

// Flushing returns a writer that flushes every write, since the response may be a watch.
func (p *Response) Flushing() io.Writer { return &flushing{p} }

type flushing struct{ *Response }

func (f *flushing) Write(b []byte) (int, error) {
	n, err := f.Response.Write(b)
	return n, cmp.Or(err, f.FlushError())
}

// Limit bounds how long net/http may take to write the rest, at most a few KB, after the
// handler has returned.
func (p *Response) Limit(patience time.Duration) {
	if p.taken != nil {
		return // it is closed
	}
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
	now := time.Now()
	limit := now.Add(-patience).UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.load.Blocked, p.load.Longest = 0, 0
	for one := range p.all {
		since := one.since.Load()
		p.bytes[one.class] += one.sent.Swap(0)
		if waited := now.Sub(time.Unix(0, since)); since != 0 && waited >= blockedAfter {
			p.load.Blocked++
			p.load.Longest = max(p.load.Longest, waited)
		}
		if since != 0 && since < limit {
			if !one.cut {
				one.cut = true
				p.load.Cut++
			}
			// The write fails, and its goroutine ends the response.
			if past := time.Unix(1, 0); one.taken != nil {
				_ = one.taken.SetWriteDeadline(past)
			} else {
				_ = one.control.SetWriteDeadline(past)
			}
		}
	}
}

// take takes over the connection of a response of which nothing has been written. The
// context ends with that of the request, with end, and with [Tracker.Disconnect]; then writes
// fail soon. The caller calls release.
func (p *Response) take(ctx context.Context, code int) (_ context.Context, from *bufio.Reader, err error) {
	if !p.owner.admit() {
		return nil, nil, apierrors.NewServiceUnavailable("the server is shutting down")
	}
	conn, buffered, err := p.control.Hijack()
	if err != nil {
		p.owner.taken.Done()
		return nil, nil, fmt.Errorf("take over the connection: %w", err)
	}
	c := &connection{Conn: conn}
	ctx, c.end = context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now().Add(closeTimeout)) })
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	p.status, p.taken = code, c
	if p.owner.ended {
		c.end()
	}
	return ctx, buffered.Reader, nil
}

// release closes a connection that was taken over, after a last write.
func (p *Response) release(last []byte) {
	defer p.owner.taken.Done()
	p.taken.end()
	_ = p.taken.SetDeadline(time.Now().Add(closeTimeout))
	p.taken.mu.Lock()
	defer p.taken.mu.Unlock()
	_, _ = p.taken.Write(last)
	_ = p.taken.Close()
}

// admit reports whether a handler may take over a connection, and counts it.
func (p *Tracker) admit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.taken.Add(1)
	return true
}

// Disconnect ends the connections that handlers have taken over, waits until they are closed,
// and lets no handler take over another one. net/http does none of that.
func (p *Tracker) Disconnect() {
	p.mu.Lock()
	p.ended = true
	for one := range p.all {
		if one.taken != nil {
			one.taken.end()
		}
	}
	p.mu.Unlock()
	p.taken.Wait()
}
