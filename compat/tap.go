// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/wire"
)

// Tap lets informers read the bytes that a server sends, before the client decodes them.
// Add it to the transport of the clients that informers watch with, using Wrap of their
// rest.Config. It affects only watches of informers made by this package, which are also
// how they read their first state from a server that streams it, and only responses that
// they can read. The client handles everything else: lists, errors and retries.
//
// An informer reads bytes only if its ListerWatcher returns the watch of one response as
// the client made it. A ListerWatcher that filters, edits or merges watches is called
// again, without the tap, and from then on the client decodes its watches. What lies
// between the tap and such a watch is not seen by the bytes: a round tripper outside of the
// tap that changes bodies, and a serializer of the client's that converts objects or sets
// defaults.
//
// To the client, a response that was taken looks like one without a body, so that its
// metrics, warnings and traces stay the same.
func Tap(next http.RoundTripper) http.RoundTripper { return &tap{next: next} }

type tap struct{ next http.RoundTripper }

// callKey is the key of a call in a context.
type callKey struct{}

// RoundTrip sends a request. The response goes to the informer that made the call, or
// else to the client.
func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	if w, _ := req.Context().Value(sampleKey{}).(*sampling); w != nil {
		if resp := w.take(req, t.next); resp != nil {
			return resp, nil
		}
	}
	c, _ := req.Context().Value(callKey{}).(*call)
	if c == nil || !c.wants(req) {
		return t.next.RoundTrip(req)
	}
	// The client ends its own context when it has the response.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
	detach := context.AfterFunc(req.Context(), func() { cancel(context.Cause(req.Context())) })
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		detach()
		cancel(err)
		return nil, err
	}
	if c.take(resp, cancel) {
		detach()
		return empty(resp), nil
	}
	resp.Body = &attached{ReadCloser: resp.Body, end: func() {
		detach()
		cancel(listwatch.ErrClosed)
	}}
	return resp, nil
}

// WrappedRoundTripper returns the transport behind the tap, for code that unwraps
// transports.
func (t *tap) WrappedRoundTripper() http.RoundTripper { return t.next }

// empty returns a response without its body.
func empty(resp *http.Response) *http.Response {
	out := *resp
	out.Header = resp.Header.Clone()
	out.Header.Del("Content-Length")
	out.Body, out.ContentLength, out.TransferEncoding = http.NoBody, 0, nil
	return &out
}

// attached is the body of a response that the client reads.
type attached struct {
	io.ReadCloser
	end func()
}

func (a *attached) Close() error {
	defer a.end()
	return a.ReadCloser.Close()
}

// call is one call of a ListerWatcher for a watch, stored in the context of the call. If a
// call is nil, the client reads the response.
type call struct {
	asked context.Context
	reads func(wire.Encoding) bool

	// mu guards the fields below.
	mu   sync.Mutex
	over bool
	// responses counts the watches that servers have accepted.
	responses int
	taken     *answer
}

// context returns ctx with the call in it.
func (c *call) context(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, c)
}

// wants reports whether a request is a watch: a ListerWatcher may send other requests, too.
func (c *call) wants(req *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	watch := req.URL.Query().Get("watch")
	return !c.over && req.Method == http.MethodGet && (watch == "true" || watch == "1")
}

// take keeps the first response if the informer can read it, and reports whether it did.
func (c *call) take(resp *http.Response, cancel context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || resp.StatusCode != http.StatusOK {
		return false
	}
	c.responses++
	encoding := encodingOf(resp)
	if c.responses > 1 || encoding == 0 || !c.reads(encoding) {
		return false
	}
	c.taken = &answer{encoding: encoding, body: resp.Body, cancel: cancel}
	c.taken.detach = context.AfterFunc(c.asked, func() { cancel(context.Cause(c.asked)) })
	return true
}

// answer ends the call and returns the response that was taken, which the caller must
// close, and whether there was no other one. It returns nil if none was taken.
func (c *call) answer() (a *answer, only bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.taken, c.responses == 1
}

// encodingOf returns the encoding of the objects in a successful response. It returns 0
// for other responses and for unknown encodings.
func encodingOf(resp *http.Response) wire.Encoding {
	media, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch as := params["as"]; {
	case resp.StatusCode != http.StatusOK, err != nil, resp.Header.Get("Content-Encoding") != "":
		return 0
	case as != "" && !strings.HasPrefix(as, "PartialObjectMetadata"):
		return 0
	case media == runtime.ContentTypeJSON:
		return wire.JSON
	case media == runtime.ContentTypeProtobuf:
		return wire.Protobuf
	}
	return 0
}

// answer is the response to a watch.
type answer struct {
	encoding wire.Encoding
	body     io.ReadCloser
	cancel   context.CancelCauseFunc
	detach   func() bool
	// failed is the error with which reading failed. Only the goroutine that reads uses
	// it.
	failed error
}

// Read reads from the body.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if err != nil && err != io.EOF {
		a.failed = err
	}
	return n, err
}

// close ends the request. It must not be called while the body is being read; cancel ends
// the read.
func (a *answer) close() {
	a.detach()
	a.cancel(listwatch.ErrClosed)
	_ = a.body.Close() // the response has ended even if Close fails
}
