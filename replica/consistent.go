// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"io"
	"net/http"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// wantsOrigin reports whether a client wants to read from the cluster itself.
func wantsOrigin(r *http.Request, q *Request) bool {
	return r.Header.Get("Watershed-Read") == "consistent" || q.Query.Get("watershedRead") == "consistent"
}

// consistentReads passes reads on to a cluster with the credentials of the fleet.
type consistentReads struct {
	origin
	requests, watches places
}

func newConsistentReads(m *fleet.Member, s *shared, opts *Options) *consistentReads {
	return &consistentReads{
		origin:   origin{m, &s.tracker, opts.OriginTimeout},
		requests: places{limit: opts.OriginRequests, perUser: max(1, opts.OriginRequests/2)},
		watches:  places{limit: opts.OriginWatches, perUser: max(1, opts.OriginWatches/2)},
	}
}

// serve passes a read on. If it returns an error, nothing has been written.
func (o *consistentReads) serve(w http.ResponseWriter, r *http.Request, q *Request) error {
	places, what, watch := &o.requests, "requests", q.watches()
	if watch {
		places, what = &o.watches, "watches"
	}
	done, err := places.take(q.user(), what, o.member.Name())
	if err != nil {
		return err
	}
	defer done()
	right := r.Context()
	if watch {
		var release func()
		right, release = until(right, q.ends)
		defer release()
	}
	traced, ended := q.passOn(right, http.Header{})
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
	passBody(right, response, resp.StatusCode, body, &flushing{response}, watch)
	return nil
}
