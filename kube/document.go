// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// passed are the headers of a request that go to the API server. All others stay
// behind: a name, a token or an impersonation that somebody sent along would be
// taken for the cluster's own.
var passed = []string{"Accept", "Accept-Encoding", "If-Modified-Since", "If-None-Match"}

// RoundTrip sends a read on to the API server and returns what it answers, whatever
// that is: errors, redirects and compressed bodies are the caller's to look at or to
// pass on, and so is closing the body. It makes the cluster an [http.RoundTripper].
//
// The path and the query of the request are those below the root of the API,
// whatever host the request names. Of its headers only those about the form and the
// age of the answer are sent, and the credentials are the cluster's own: who may ask
// is for the caller to decide. A method other than GET and HEAD, and a path that
// climbs, are errors. Only the request's context bounds the wait, not the Timeout of
// the [rest.Config].
func (c *Cluster) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close() // a read has none
	}
	doing := fmt.Sprintf("%s %s in %s", req.Method, req.URL.Path, c.name)
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil, fmt.Errorf("%s: not a read", doing)
	}
	u, err := c.below(req.URL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	own, err := http.NewRequestWithContext(req.Context(), req.Method, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	for _, name := range passed {
		if values := req.Header.Values(name); len(values) > 0 {
			own.Header[name] = slices.Clone(values)
		}
	}
	// Not by way of the client, which would follow redirects.
	transport := c.client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	resp, err := transport.RoundTrip(own)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return resp, nil
}

// below is the address of a path below the root. It is put together as it is:
// cleaning it up would change what is asked for.
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
