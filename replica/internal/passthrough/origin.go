// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// passedBack are the headers of a cluster's response that reach the client. Others could
// set cookies, request credentials or redirect a browser, on behalf of every cluster that
// this server has.
var passedBack = []string{
	"Accept-Ranges", "Allow", "Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type",
	"Etag", "Expires", "Last-Modified", "Process-Start-Time-Unix", "Retry-After", "Vary",
	"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
}

// documentTypes are the media types of documents that are not objects: CBOR, OpenAPI, keys of
// service accounts, metrics and profiles. A browser renders none of them.
var documentTypes = []string{
	"application/cbor", "application/cbor-seq",
	"application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
	"application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
	"application/jwk-set+json", "application/octet-stream", "application/openmetrics-text",
	"application/vnd.google.protobuf", "text/plain",
}

// errNoResponse ends a request that was passed on.
var errNoResponse = errors.New("no response")

// origin is the cluster of a member, for requests that are passed on to it.
type origin struct {
	member  *fleet.Member
	tracker *respond.Tracker
	// timeout is how long the cluster may take to send headers, and to send the next part
	// of a body that does not stay open.
	timeout time.Duration
}

// answer is the response of a cluster.
type answer struct {
	*http.Response
	// prompt is the body of a response that does not stay open.
	prompt io.Reader
	// end closes the body.
	end func()
}

// ask sends a request to the cluster, and returns when the headers of the response have
// arrived. The caller calls end.
func (o *origin) ask(
	ctx context.Context, send func(context.Context, *kube.Cluster) (*http.Response, error),
) (*answer, error) {
	connection := o.member.Cluster()
	if connection == nil {
		return nil, view.Unreachable([]*fleet.Member{o.member}, "")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(o.timeout, func() { cancel(errNoResponse) })
	resp, err := send(ctx, connection)
	limit.Stop()
	if err != nil {
		late := errors.Is(context.Cause(ctx), errNoResponse)
		cancel(nil)
		switch {
		case late:
			return nil, status.New(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
				fmt.Sprintf("the cluster did not respond within %s", o.timeout))
		case errors.Is(err, kube.ErrIndistinctCallers):
			return nil, status.New(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
				"requests are not passed on: "+err.Error())
		}
		return nil, badGateway(err.Error())
	}
	return &answer{resp, &prompt{resp.Body, ctx, limit, o.timeout}, func() {
		limit.Stop()
		cancel(nil)
		_ = resp.Body.Close()
	}}, nil
}

// check returns an error for a response that is not one of a Kubernetes API.
func (o *origin) check(resp *http.Response) error {
	if passable(resp) {
		return nil
	}
	return badGateway(fmt.Sprintf("cluster %s answered %q with content of type %q, which is not a response of a "+
		"Kubernetes API",
		o.member.Name(), resp.Status, resp.Header.Get("Content-Type")))
}

// badGateway returns the 502 for a cluster that does not answer as it should.
func badGateway(message string) error {
	return status.New(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable,
		warning.Shorten(message, warning.MaxCause))
}

// passHeaders passes the headers of a response back. Source is the value of
// Watershed-Source.
func passHeaders(to, from http.Header, source string) {
	for _, name := range passedBack {
		if values := from.Values(name); len(values) > 0 {
			to[name] = values
		}
	}
	warning.Pass(to, from.Values("Warning"))
	to.Set("Watershed-Source", source)
}

// passBody writes the code of a response and its body. A response that is cut off is aborted,
// because a part must not look like the whole. Only a watch may end with ctx: its client
// continues with another one, while that of a log would take the end for that of the log.
func passBody(ctx context.Context, w *respond.Response, code int, body io.Reader, to io.Writer, watch bool) {
	w.WriteHeader(code)
	if err := w.FlushError(); err != nil { // a watch has begun, though nothing may happen for long
		return
	}
	_, err := io.Copy(to, body)
	// After the end of ctx a body can also end without an error: the cluster notices that the
	// request was cut off, and completes its response.
	if cut := ctx.Err() != nil; cut && !watch || err != nil && !cut {
		panic(http.ErrAbortHandler)
	}
}

// prompt reads a body. Its timer runs while a Read waits for the cluster, and not while the
// client is slow.
type prompt struct {
	io.Reader
	ctx     context.Context // of the request
	timer   *time.Timer
	timeout time.Duration
}

func (p *prompt) Read(b []byte) (int, error) {
	p.timer.Reset(p.timeout)
	defer p.timer.Stop()
	n, err := p.Reader.Read(b)
	if errors.Is(err, io.EOF) && errors.Is(context.Cause(p.ctx), errNoResponse) {
		err = errNoResponse // the cluster has ended its response because it was cut off
	}
	return n, err
}

// passable reports whether a response can be one of a Kubernetes API: of a media type that
// it has, and not a redirect. It uses plain text also for paths that it does not have.
func passable(resp *http.Response) bool {
	switch {
	case resp.StatusCode == http.StatusNotModified, resp.StatusCode == http.StatusNoContent:
		return true
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return false
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (slices.Contains(encode.MediaTypes[:], media) || slices.Contains(documentTypes, media))
}
