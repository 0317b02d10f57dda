// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

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

// slim drops what a response refers to besides its body: its headers, and the request with
// its URL and headers, about 2 KB. The transport has the same response as long as its body
// is open.
func (r *response) slim() {
	r.Header, r.Request = nil, nil
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
	return 0, &reflector.Error{
		Err: fmt.Errorf("%s: the response is of type %.100q, neither JSON nor protobuf", r.request.Doing,
			r.Header.Get("Content-Type")),
	}
}

// unreadable is failed for errors that can be about one object.
func (r *response) unreadable(err error) error {
	var o *wire.ObjectError
	if errors.As(err, &o) {
		return r.request.Undecodable(o.Key, stream.Nameless(o), err)
	}
	return r.failed(err)
}
