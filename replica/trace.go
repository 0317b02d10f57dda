// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

// Trace follows one request, see [Options.Trace]. The goroutine of the request calls its
// methods and waits for them.
type Trace interface {
	// Phase is called when a part of the work begins, and end when that part ends. Parts can
	// be nested.
	Phase(p Phase) (end func())
	// PassOn is called before the request is sent on to its cluster with these headers, which
	// it may change. End is called with the code of the response after the response was passed
	// back, or with an error.
	PassOn(ctx context.Context, header http.Header) (_ context.Context, end func(code int, err error))
	// End is called once, after the response.
	End(e Ending)
}

// Phase is a part of the work for a request.
type Phase string

// The phases of a request.
const (
	// PhaseAdmit is the call of [Options.Admit], and PhaseAuthorize that of
	// [Options.Authorize].
	PhaseAdmit     Phase = "admit"
	PhaseAuthorize Phase = "authorize"
	// PhaseAnswer is everything after them.
	PhaseAnswer Phase = "answer"
	// PhaseWait is the wait until the copy has what the request requires: the writes of the
	// user, or a version.
	PhaseWait Phase = "wait"
	// PhaseSelect reads the objects of a list from the copy.
	PhaseSelect Phase = "select"
)

// Ending is how a request ended.
type Ending struct {
	// Status is the code of the response.
	Status int
	// Bytes is how many bytes of the body were written.
	Bytes int64
	// Passed means that the cluster has answered the request, with the caller's credentials or
	// with the fleet's.
	Passed bool
	// Aborted means that the response is not complete.
	Aborted bool
}

// DeliveryTrace follows a sample of the changes to the clients of watches, see
// [Options.DeliveryTrace]. Many goroutines call its methods.
type DeliveryTrace interface {
	// Active reports whether a change of the sample is on its way. Delivery is called only
	// while it is.
	Active() bool
	// Delivery returns the function to call when the change has been written to a client, nil
	// if the change is not in the sample. Trace is that of the watch, nil if it has none.
	Delivery(cluster string, r schema.GroupResource, version uint64, trace Trace) (delivered func())
}

// follow answers a request with a trace.
func (s *Server) follow(w *respond.Response, r *http.Request, q *Request) {
	if q.trace = s.opts.Trace(r, q); q.trace == nil {
		s.answer(w, r, q)
		return
	}
	aborted := true
	defer func() {
		passed := w.Header().Get("Watershed-Source") != ""
		q.trace.End(Ending{Status: w.Status(), Bytes: w.Written(), Passed: passed, Aborted: aborted})
	}()
	s.answer(w, r, q)
	aborted = false
}

// noPhase ends a phase of a request without a trace.
func noPhase() {}

// phase begins a phase of the request, and returns the function that ends it.
func (q *Request) phase(p Phase) (end func()) {
	if q.trace == nil {
		return noPhase
	}
	return q.trace.Phase(p)
}

// passOn reports to the trace that the request is passed on with headers.
func (q *Request) passOn(ctx context.Context, header http.Header) (_ context.Context, end func(code int, err error)) {
	if q.trace == nil {
		return ctx, func(int, error) {}
	}
	return q.trace.PassOn(ctx, header)
}
