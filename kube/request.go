// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// maxDocument limits responses that are read as a whole, in bytes after
	// decompression: discovery documents. Ten thousand custom types make one of about 5
	// MB.
	maxDocument = 16 << 20
	// maxParts limits the number of JSON objects in such a response: one of two bytes
	// takes about 300 when it is decoded.
	maxParts = 400_000
)

// request is one request to the API server.
type request struct {
	method string
	path   []string // escaped segments
	query  url.Values
	accept string
	body   []byte // JSON
	// stream is set if reading the body may take longer than the client's timeout.
	stream bool
	// resource and name identify the object of the request, for errors.
	resource schema.GroupResource
	name     string
	listwatch.Request
}

// response is a response with a success status.
type response struct {
	*http.Response
	request listwatch.Request
	// asked is the caller's context.
	asked context.Context
	// own is the context of the HTTP request, derived from asked.
	own    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// body adapts a response to package listwatch.
type body struct{ *response }

func (b body) Read(p []byte) (int, error) { return b.Body.Read(p) }
func (b body) Cancel()                    { b.cancel(listwatch.ErrClosed) }
func (b body) Close()                     { b.close() }
func (b body) Failed(err error) error     { return b.failed(err) }

func (b body) Ended() error {
	if b.own.Err() == nil {
		return nil
	}
	return b.failed(b.own.Err())
}

// send makes the request and returns when the headers of a successful response have
// arrived. The caller must close the response.
func (c *Cluster) send(ctx context.Context, r *request) (*response, error) {
	u := c.root.JoinPath(r.path...)
	u.RawQuery = r.query.Encode()
	own, cancel := context.WithCancelCause(ctx)
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(own, r.method, u.String(), body)
	if err != nil {
		cancel(listwatch.ErrClosed)
		return nil, fmt.Errorf("%s: %w", r.Doing, err)
	}
	req.Header.Set("Accept", r.accept)
	if !c.config.DisableCompression {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if r.body != nil {
		req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	resp := &response{request: r.Request, asked: ctx, own: own, cancel: cancel}
	if limit := c.config.Timeout; limit > 0 {
		resp.timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("no answer within %s", limit)) })
	}
	resp.Response, err = c.client.Do(req)
	if err != nil {
		err = resp.failed(err)
		resp.close()
		return nil, err
	}
	uncompress(resp.Response)
	c.warn(ctx, resp.Header)
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		err := resp.refused(r)
		resp.close()
		return nil, err
	}
	if r.stream && resp.timer != nil {
		resp.timer.Stop()
	}
	return resp, nil
}

// warn passes the server's warnings to the warning handler of the configuration.
func (c *Cluster) warn(ctx context.Context, h http.Header) {
	if c.config.WarningHandler == nil && c.config.WarningHandlerWithContext == nil {
		return
	}
	// Warnings that cannot be parsed are ignored.
	warnings, _ := utilnet.ParseWarningHeaders(h["Warning"])
	for _, w := range warnings {
		if handler := c.config.WarningHandlerWithContext; handler != nil {
			handler.HandleWarningHeaderWithContext(ctx, w.Code, w.Agent, w.Text)
		} else {
			c.config.WarningHandler.HandleWarningHeader(w.Code, w.Agent, w.Text)
		}
	}
}

// close ends the request. The unread rest of the body is lost and, with HTTP/1.1, so is
// the connection.
func (r *response) close() {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.cancel(listwatch.ErrClosed)
	if r.Response != nil {
		_ = r.Body.Close()
	}
}

// drain reads the rest of a body whose content is complete, usually only its end, so that
// the connection can be reused.
func (r *response) drain() {
	_, _ = io.CopyN(io.Discard, r.Body, 4<<10)
}

// failed returns the error of a request or of a body that cannot be read. If a context
// has ended, it returns that error.
func (r *response) failed(err error) error {
	if ended := r.request.Ended(r.asked); ended != nil {
		return ended
	}
	reason := reflector.Unknown
	switch {
	case r.own.Err() != nil:
		err = context.Cause(r.own)
		if errors.Is(err, listwatch.ErrClosed) {
			return fmt.Errorf("%s: %w", r.request.Doing, err)
		}
	case utilnet.IsConnectionRefused(err):
		reason = reflector.Refused
	}
	// The address is long and repeats what Doing contains.
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &reflector.Error{Reason: reason, Err: fmt.Errorf("%s: %w", r.request.Doing, err)}
}

// encoding returns the encoding of the body, by its Content-Type.
func (r *response) encoding() (wire.Encoding, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && media == runtime.ContentTypeJSON:
		return wire.JSON, nil
	case err == nil && media == runtime.ContentTypeProtobuf:
		return wire.Protobuf, nil
	}
	return 0, &reflector.Error{Err: fmt.Errorf("%s: the answer is %q, neither JSON nor protobuf", r.request.Doing, r.Header.Get("Content-Type"))}
}

// document sends a request and reads the whole body.
func (c *Cluster) document(ctx context.Context, r *request) ([]byte, http.Header, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, nil, resp.failed(err)
	}
	if len(body) > maxDocument {
		return nil, nil, fmt.Errorf("%s: the answer is longer than %d bytes", r.Doing, maxDocument)
	}
	if bytes.Count(body, []byte{'{'}) > maxParts {
		return nil, nil, fmt.Errorf("%s: the answer has more than %d objects", r.Doing, maxParts)
	}
	return body, resp.Header, nil
}

// object sends a request and reads the one object of the response.
func (c *Cluster) object(ctx context.Context, r *request, kind *wire.Kind) (*wire.Object, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.close()
	encoding, err := resp.encoding()
	if err != nil {
		return nil, err
	}
	obj, err := wire.ReadObject(resp.Body, encoding, kind)
	if err != nil {
		return nil, resp.unreadable(err)
	}
	resp.drain()
	return obj, nil
}

// unreadable is failed for errors that can be about one object.
func (r *response) unreadable(err error) error {
	var o *wire.ObjectError
	if errors.As(err, &o) {
		return r.request.Undecodable(o.Key, o.Nameless(), err)
	}
	return r.failed(err)
}
