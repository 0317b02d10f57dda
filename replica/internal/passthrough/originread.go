// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// WantsOrigin reports whether a client wants to read from the cluster itself.
func WantsOrigin(r *http.Request, query url.Values) bool {
	return r.Header.Get("Watershed-Read") == "consistent" || query.Get("watershedRead") == "consistent"
}

// OriginReads passes reads on to the API server of a cluster with the credentials of the fleet.
type OriginReads struct {
	origin
	requests, watches passLimit
}

// NewOriginReads returns the reads from the API server of a member. What is written to clients is added to a tracker.
func NewOriginReads(m *fleet.Member, tracker *respond.Tracker, limits Limits) *OriginReads {
	return &OriginReads{
		origin:   origin{m, tracker, limits.Timeout},
		requests: newPassLimit(limits.Requests),
		watches:  newPassLimit(limits.Connections),
	}
}

// Serve passes a read on. A watch ends when one of ends does. If Serve returns an error, nothing has been
// written.
func (o *OriginReads) Serve(
	w http.ResponseWriter, r *http.Request, q *Request, watch bool, ends []context.Context,
) error {
	limit, what := &o.requests, "requests"
	if watch {
		limit, what = &o.watches, "watches"
	}
	done, err := limit.take(q.User, what, o.member.Name())
	if err != nil {
		return err
	}
	defer done()
	right := r.Context()
	if watch {
		var release func()
		right, release = respond.Until(right, ends)
		defer release()
	}
	traced, ended := q.PassOn(right, http.Header{})
	resp, err := o.ask(traced, func(ctx context.Context, connection *kube.Cluster) (*http.Response, error) {
		passed := r.Clone(ctx)
		query := r.URL.Query()
		query.Del("watershedRead")
		passed.URL.Path, passed.URL.RawPath, passed.URL.RawQuery = q.Path, "", query.Encode()
		passed.Body = http.NoBody
		return connection.RoundTrip(passed)
	})
	if err != nil {
		ended(0, err)
		return err
	}
	defer func() { ended(resp.StatusCode, nil) }()
	defer resp.end()
	if err := o.check(resp.Response); err != nil {
		return err
	}
	var body io.Reader = resp.Body
	if !watch {
		body = resp.prompt
	}
	passHeaders(w.Header(), resp.Header, "origin")
	response := o.tracker.Begin(w)
	defer response.End()
	passBody(right, response, resp.StatusCode, body, response.Flushing(), watch)
	return nil
}
