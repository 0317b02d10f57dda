// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// subject is a server under test: kube-apiserver, or the one that is compared with it.
type subject struct {
	name   string
	root   string // URL of the API's root, without a trailing slash
	prefix string // the path of root
	token  string
	header http.Header // of every request
	client *http.Client

	mu     sync.Mutex
	hashes map[string]string // see hash
}

func newSubject(name string, cfg *rest.Config, prefix string) (*subject, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	return &subject{
		name: name, root: cfg.Host + prefix, prefix: prefix, token: cfg.BearerToken,
		client: &http.Client{
			// Each request sets which encodings it accepts.
			Transport: &http.Transport{
				TLSClientConfig: tls, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 16,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// request is a request of the corpus.
type request struct {
	Category string
	Method   string
	// URI is the path below the API's root, with its query. It may contain placeholders;
	// see expand.
	URI    string
	Accept string // "" sends none
	// Encoding is the Accept-Encoding header; "" sends none.
	Encoding string
	// IfNoneMatch sends the ETag of a previous response.
	IfNoneMatch bool
	// Pages follows the continue tokens to the last page.
	Pages bool
	// Fleeting bodies vary: only the rest is compared.
	Fleeting bool
	// From are the clients that the request was recorded from; empty if it was written by
	// hand.
	From []string
}

func (r request) String() string {
	s := r.Method + " " + r.URI
	for _, h := range [][2]string{{"Accept", r.Accept}, {"Accept-Encoding", r.Encoding}} {
		if h[1] != "" {
			s += " " + h[0] + ": " + h[1]
		}
	}
	if r.IfNoneMatch {
		s += " If-None-Match"
	}
	if r.Pages {
		s += " (all pages)"
	}
	return s
}

// query returns a parameter of the request's URI.
func (r request) query(name string) string {
	_, raw, _ := strings.Cut(r.URI, "?")
	values, _ := url.ParseQuery(raw)
	return values.Get(name)
}

// path returns the path of the request's URI.
func (r request) path() string {
	path, _, _ := strings.Cut(r.URI, "?")
	return path
}

// watches reports whether the response is a stream of events. The parameter is
// interpreted as by the server: anything but 0 and false is true, and it is ignored where
// there is no list.
func (r request) watches() bool {
	_, raw, _ := strings.Cut(r.URI, "?")
	values, _ := url.ParseQuery(raw)
	w := strings.ToLower(values.Get("watch"))
	asked := values.Has("watch") && w != "0" && w != "false" && !isSubresource(r.path())
	return r.Method == http.MethodGet && (asked || strings.Contains(r.path(), "/watch/"))
}

// answer is the response to a request.
type answer struct {
	uri    string // of the request
	host   string // of the request, with its port
	code   int
	header http.Header
	body   []byte // without compression
	err    error
	// next are the pages after the first.
	next []*answer
	// events are the events of a watch.
	events []event
	// open means that a watch was still open when its time was over.
	open bool
}

// maxBody limits the size of a body, in bytes: more is a mistake.
const maxBody = 64 << 20

// do sends a request without placeholders. The caller closes the body.
func (s *subject) do(ctx context.Context, r request, more http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, s.root+r.URI, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Accept": r.Accept, "Accept-Encoding": r.Encoding} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	for _, all := range []http.Header{s.header, more} {
		for name, values := range all {
			req.Header[name] = values
		}
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	return s.client.Do(req)
}

// send sends a request without placeholders and reads the whole response.
func (s *subject) send(ctx context.Context, r request) *answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var more http.Header
	if r.IfNoneMatch {
		first := r
		first.IfNoneMatch = false
		a := s.send(ctx, first)
		if a.err != nil {
			return a
		}
		more = http.Header{"If-None-Match": {a.header.Get("ETag")}}
	}
	resp, err := s.do(ctx, r, more)
	if err != nil {
		return &answer{err: err}
	}
	defer resp.Body.Close()
	a := &answer{uri: r.URI, host: resp.Request.URL.Host, code: resp.StatusCode, header: resp.Header}
	if a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); a.err != nil {
		a.err = fmt.Errorf("body: %w", a.err)
		return a
	}
	if resp.Header.Get("Content-Encoding") == "gzip" && len(a.body) > 0 {
		a.body, a.err = gunzip(a.body)
	}
	return a
}

// sendAll is send with all pages after the first.
func (s *subject) sendAll(ctx context.Context, r request) *answer {
	first := s.send(ctx, r)
	for a := first; a.err == nil && a.code == http.StatusOK; {
		token, err := continueToken(a)
		if err != nil {
			first.err = err
		}
		if err != nil || token == "" || len(first.next) > 1000 {
			break
		}
		path, raw, _ := strings.Cut(r.URI, "?")
		query, err := url.ParseQuery(raw)
		if err != nil {
			first.err = err
			break
		}
		// A token contains its version.
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
		query.Set("continue", token)
		page := r
		page.URI = path + "?" + query.Encode()
		a = s.send(ctx, page)
		first.next = append(first.next, a)
	}
	return first
}

func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, maxBody))
}

// watch reads a watch until it ends or its time is over.
func (s *subject) watch(ctx context.Context, r request, limit time.Duration) *answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := s.do(ctx, r, nil)
	if err != nil {
		return &answer{err: err}
	}
	defer resp.Body.Close()
	a := &answer{uri: r.URI, host: resp.Request.URL.Host, code: resp.StatusCode, header: resp.Header}
	if resp.StatusCode != http.StatusOK {
		a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
		return a
	}
	a.err = readEvents(resp, func(e event) { a.events = append(a.events, e) })
	if ctx.Err() != nil {
		a.err, a.open = nil, true
	}
	return a
}

// headerList returns a header's values as one text, independent of their order.
func headerList(h http.Header, name string) string {
	var all []string
	for _, v := range h.Values(name) {
		for part := range strings.SplitSeq(v, ", ") {
			all = append(all, part)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
