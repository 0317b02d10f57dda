// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

// Outcome is how a request ended, or how far it is.
type Outcome struct {
	// Number identifies the request: the server gives each number to one request only.
	Number uint64
	// Started means that the response to a watch has begun. Audit is called again when it
	// ends.
	Started bool
	// Panicked means that the program failed. Then the response is not complete.
	Panicked bool
	// Passed means that the request was passed on with the caller's credentials, even if the
	// cluster did not answer.
	Passed bool
	// Status is the code of the response, and Reason that of a response that is an error, ""
	// if it has none.
	Status int
	Reason metav1.StatusReason
	// Began is when the request arrived, and Took how long the response took.
	Began time.Time
	Took  time.Duration
}

// audit calls the hook when a watch begins, and returns the function to defer that calls it
// at the end of a request.
func (s *Server) audit(w *respond.Response, r *http.Request, q *Request) func() {
	outcome := Outcome{Number: s.audited.Add(1), Began: time.Now()}
	call := func() {
		outcome.Passed, outcome.Status, outcome.Reason = q.Passed, w.Status(), w.Reason()
		outcome.Took = time.Since(outcome.Began)
		s.opts.Audit(r, q, outcome)
	}
	if q.attributes.Verb == "watch" || q.Passed && q.staysOpen(r) {
		outcome.Started = true
		w.OnBegin(call)
	}
	return func() {
		p := recover()
		err, _ := p.(error)
		outcome.Started, outcome.Panicked = false, p != nil && !errors.Is(err, http.ErrAbortHandler)
		call()
		if p != nil {
			panic(p)
		}
	}
}
