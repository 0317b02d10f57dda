// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// The paths between replicas.
const (
	beatPath     = "/v1/beat"
	notePath     = "/v1/note"
	reportPath   = "/v1/report"
	versionsPath = "/v1/versions"
)

// formatHeader has the format of a request.
const formatHeader = "Watershed-Peer-Format"

// maxReport and maxVersions are how many bytes a report and a list of versions may have.
const maxReport, maxVersions = 4 << 20, 64 << 20

// remote is another replica.
type remote struct {
	Peer
	exchange  *Exchange
	ctx       context.Context
	stop      context.CancelFunc
	transport *http.Transport
	// giving has a token for each note on its way to the replica, and serving one for each request of
	// the replica that is being answered.
	giving, serving chan struct{}
	// excess means that there are too many replicas.
	excess bool
	// useless is why the replica cannot be used at all, nil if it can.
	useless error

	mu sync.Mutex
	// answered is when the replica last answered, and heard when it last sent something, zero if it
	// has not. failure is why the last request was not answered, nil if it was.
	answered, heard time.Time
	failure         error
	// found is when the replica was found.
	found time.Time
	// was is whether it was reachable when that was last logged.
	was bool
}

// newRemote returns another replica, which its run method calls. Excess means that there are too many.
func newRemote(ctx context.Context, e *Exchange, p Peer, excess bool) *remote {
	r := &remote{
		Peer: p, exchange: e, excess: excess, found: time.Now(),
		giving: make(chan struct{}, maxNotes), serving: make(chan struct{}, maxNotes),
	}
	r.ctx, r.stop = context.WithCancel(ctx)
	_, _, err := net.SplitHostPort(p.Address)
	switch {
	case excess:
		r.useless = fmt.Errorf("there are more than %d other replicas", maxPeers)
	case p.Format != Format:
		r.useless = fmt.Errorf("it has format %d, and this replica has %d", p.Format, Format)
	case p.Key == e.opts.Key.Hash():
		r.useless = errors.New("it claims to have the key of this replica")
	case err != nil:
		r.useless = fmt.Errorf("its address: %w", err)
	}
	dialer := &net.Dialer{Timeout: noteTimeout}
	r.transport = &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: clientTLS(e.own, p), TLSHandshakeTimeout: noteTimeout,
		MaxConnsPerHost: maxNotes + 2, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	return r
}

// run shows the replica that this one runs, and requests its reports, until it is stopped. It begins
// after a pause: a write that this replica answered before it knew of the other one is then in the
// past when the other learns that it will receive all notes.
func (r *remote) run() {
	defer r.transport.CloseIdleConnections()
	var reported time.Time
	for r.useless == nil && timer.Sleep(r.ctx, beat) == nil {
		_, err := r.ask(r.ctx, http.MethodPost, beatPath, nil, noteTimeout, 0)
		r.record(err)
		r.log()
		if err == nil && time.Since(reported) >= reportEvery {
			reported = time.Now()
			if report, err := r.ask(r.ctx, http.MethodGet, reportPath, nil, silence, maxReport); err == nil {
				r.exchange.opts.Reported(r.Peer, report)
			}
		}
	}
}

// record records whether a request was answered.
func (r *remote) record(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure = err; err == nil {
		r.answered = time.Now()
	}
}

// hear records that the replica has sent something.
func (r *remote) hear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = time.Now()
}

// isRecent reports whether the replica has sent something lately, or answered: at is the field.
func (r *remote) isRecent(at *time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return isRecent(*at)
}

func isRecent(t time.Time) bool { return !t.IsZero() && time.Since(t) < silence }

// state returns the state of the connection.
func (r *remote) state() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := State{Peer: r.Peer, Since: r.found}
	switch {
	case r.useless != nil:
		s.Err = r.useless
		return s
	case !isRecent(r.answered):
		s.Err = errors.New("it has not answered yet")
		if r.failure != nil {
			s.Err = r.failure
		}
	case !isRecent(r.heard):
		s.Err = fmt.Errorf("it answers, and has not sent anything for %s", silence)
	default:
		return s
	}
	if !r.answered.IsZero() && !r.heard.IsZero() {
		s.Since = r.answered
		if r.heard.Before(r.answered) {
			s.Since = r.heard
		}
	}
	return s
}

// log logs that the replica has become reachable or unreachable. Only run calls it.
func (r *remote) log() {
	is := r.state()
	if now := is.Err == nil; now != r.was {
		r.was = now
		if now {
			r.exchange.opts.Logger.Info("connected to another replica", "replica", r.Name(), "address", r.Address)
		} else {
			r.exchange.opts.Logger.Warn("another replica is unreachable: reads through it may miss writes for a moment",
				"replica", r.Name(), "address", r.Address, "err", is.Err)
		}
	}
}

// give gives a note to the replica, and reports whether it has accepted the note. A replica that has
// not answered lately is not asked: nobody has to wait for it.
func (r *remote) give(note []byte) bool {
	if r.useless != nil || !r.isRecent(&r.answered) {
		return false
	}
	select {
	case r.giving <- struct{}{}:
	default:
		return false
	}
	defer func() { <-r.giving }()
	_, err := r.ask(r.ctx, http.MethodPost, notePath, note, noteTimeout, 0)
	return err == nil
}

// maxRefusal is how many bytes of an error are read.
const maxRefusal = 1 << 10

// ask sends a request, and returns the body of the response, which may have up to most bytes. It ends
// with ctx, with the replica, or after the timeout.
func (r *remote) ask(
	ctx context.Context, method, path string, body []byte, timeout time.Duration, most int64,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+r.Address+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", r.Address, err)
	}
	req.Header.Set(formatHeader, strconv.Itoa(Format))
	// All requests may be repeated if the other side has just closed an idle connection.
	req.Header["Idempotency-Key"] = nil
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	most = max(most, maxRefusal)
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("%s: %.200q", resp.Status, text)
	case int64(len(text)) > most:
		return nil, fmt.Errorf("its response has more than %d bytes", most)
	}
	return text, nil
}
