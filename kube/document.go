// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// passed are the request headers that are forwarded to the API server. All others are
// dropped: the server would take a user, a token or an impersonation header from the
// request for the cluster's own.
var passed = []string{"Accept", "Accept-Encoding", "If-Modified-Since", "If-None-Match"}

// RoundTrip forwards a read to the API server and returns its response as it is. The
// caller handles errors, redirects and compressed bodies or passes them on, and must
// close the body. It makes the cluster an [http.RoundTripper].
//
// The path and the query of the request are relative to the root of the API; the host in
// the request is ignored. Only the headers that concern the form and the age of the
// response are forwarded. The credentials are the cluster's own, so the caller must
// authorize the request. A method other than GET and HEAD, and a path with dot segments,
// are errors. Only the request's context limits the wait, not the Timeout of the
// [rest.Config].
func (c *Cluster) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close() // a read has no body
	}
	doing := fmt.Sprintf("%s %s in %s", req.Method, req.URL.Path, c.name)
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil, fmt.Errorf("%s: not a read", doing)
	}
	own, err := c.outgoing(req, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	for _, name := range passed {
		if values := req.Header.Values(name); len(values) > 0 {
			own.Header[name] = slices.Clone(values)
		}
	}
	// The client would follow redirects, so the transport is used directly.
	transport := c.client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	resp, err := exchange(transport, own)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return resp, nil
}

// outgoing returns a request for the path of another one, without headers.
func (c *Cluster) outgoing(req *http.Request, body io.Reader) (*http.Request, error) {
	u, err := c.below(req.URL)
	if err != nil {
		return nil, err
	}
	return http.NewRequestWithContext(req.Context(), req.Method, u.String(), body)
}

// exchange sends a request and returns the response, unless its headers are too large.
func exchange(transport http.RoundTripper, req *http.Request) (*http.Response, error) {
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if n := headerSize(resp.Header); n > maxHeader {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the headers of the response have %d bytes", n)
	}
	return resp, nil
}

// below returns the URL of a path below the root. It joins the two without cleaning the
// path, which would change the request.
func (c *Cluster) below(target *url.URL) (*url.URL, error) {
	if !strings.HasPrefix(target.Path, "/") {
		return nil, errors.New("path does not begin with a slash")
	}
	for segment := range strings.SplitSeq(target.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, errors.New("path climbs")
		}
	}
	u := *c.root
	u.Path = strings.TrimSuffix(c.root.Path, "/") + target.Path
	u.RawPath = strings.TrimSuffix(c.root.EscapedPath(), "/") + target.EscapedPath()
	u.RawQuery = target.RawQuery
	return &u, nil
}
