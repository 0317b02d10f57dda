// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// body is the body of a request. A client has a limited time to send it, from the first
// read on. There is no time limit for the time before, in which a request may wait for its
// turn.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	reading bool
	ended   bool
}

// limitBody returns the request with a limit on the size of its body and on the time that
// the client takes to send it. The caller calls drop after the handler has returned. It
// returns false, and has written the response, for a body that is declared to be larger, or
// in chunks on HTTP/1. Chunks are refused because net/http ignores the Content-Length of a
// request that has both, and a proxy in front of the server may ignore the chunks: the two
// would then see different requests on the connection. Clients of the Kubernetes API send
// Content-Length.
func limitBody(w http.ResponseWriter, r *http.Request, opts *Options) (limited *http.Request, drop func(), ok bool) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return r, func() {}, true
	}
	b := &body{
		ReadCloser: http.MaxBytesReader(w, r.Body, opts.MaxBody),
		control:    http.NewResponseController(w),
		timeout:    opts.BodyTimeout,
	}
	code, text := 0, ""
	switch {
	case r.ContentLength > opts.MaxBody:
		code, text = http.StatusRequestEntityTooLarge,
			fmt.Sprintf("Request entity too large: limit is %d\n", opts.MaxBody)
	case r.ContentLength < 0 && r.ProtoMajor == 1:
		code = http.StatusLengthRequired
		text = "Content-Length is missing: bodies in chunks are not accepted\n"
	}
	if code != 0 {
		w.Header().Set("Connection", "close")
		writeText(w, code, text)
		b.drop(r)
		return nil, nil, false
	}
	// The server compares the body of its own request with the one it made, so it must
	// not be replaced there.
	copied := *r
	copied.Body = b
	return &copied, func() { b.drop(r) }, true
}

// Read reads from the client.
func (b *body) Read(p []byte) (int, error) {
	if !b.reading {
		b.reading = true
		_ = b.control.SetReadDeadline(time.Now().Add(b.timeout))
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		// From here on the server reads from the connection to notice that the client
		// disconnects. net/http removes the deadline for that.
		b.ended = true
	}
	return n, err
}

// drop reads what is left of an HTTP/1 body, within its limits, and makes the server close
// the connection if that is not all of it. A connection that is closed with bytes unread is
// reset, and the client may then lose the response. A client that waits for a 100 Continue
// has sent nothing. On HTTP/2 the server resets the stream.
func (b *body) drop(r *http.Request) {
	if b.ended || r.ProtoMajor != 1 {
		return
	}
	if r.Header.Get("Expect") == "" {
		_, _ = io.Copy(io.Discard, b)
	}
	if !b.ended {
		_ = b.control.SetReadDeadline(time.Unix(1, 0))
	}
}

// writeText writes a short response that no handler has made.
func writeText(w http.ResponseWriter, code int, text string) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}
