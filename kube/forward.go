// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// forwarded are the request headers that [Cluster.Forward] sends. All others are dropped:
// those of a hop, those by which a proxy claims to know a user (X-Remote-User), and cookies.
// A client cannot have one of these dropped by naming it in its Connection header.
var forwarded = []string{
	"Accept", "Accept-Encoding", "Authorization", "Content-Type", "If-Modified-Since", "If-None-Match", "Origin",
	"Range",
	"Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Traceparent",
	"Tracestate", "User-Agent", "X-Stream-Protocol-Version",
}

// forwardedPrefixes are the beginnings of further headers that are sent.
var forwardedPrefixes = []string{"Impersonate-", "Kubectl-"}

// callers sends the requests of callers to an API server, over connections that have no
// credentials.
type callers struct {
	// mu guards shared and single, which are set by the first request.
	mu sync.Mutex
	// shared uses HTTP/2 if the server does. single uses a connection for each request.
	shared, single http.RoundTripper

	// check is made with the cluster.
	check *callersCheck
}

// transport returns a transport for a request. It verifies the server as the cluster does.
func (f *callers) transport(config *rest.Config, single bool) (http.RoundTripper, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shared == nil {
		// It has neither certificates, tokens and plugins, nor the functions that wrap the
		// transport, which may add credentials too.
		anonymous := rest.AnonymousClientConfig(config)
		anonymous.UserAgent = ""
		anonymous.Timeout = 0
		anonymous.DisableCompression = true
		shared, err := rest.TransportFor(anonymous)
		if err != nil {
			return nil, err
		}
		anonymous.NextProtos = []string{"http/1.1"}
		if f.single, err = rest.TransportFor(anonymous); err != nil {
			return nil, err
		}
		f.shared = shared
	}
	if single {
		return f.single, nil
	}
	return f.shared, nil
}

func (f *callers) closeIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shared != nil {
		utilnet.CloseIdleConnectionsFor(f.shared)
		utilnet.CloseIdleConnectionsFor(f.single)
	}
}

// Forward sends a request of a caller to the API server, with the credentials that the
// request has in its headers and never with those of the cluster, and returns the response
// as it is. The caller handles errors, redirects and compressed bodies or passes them on,
// and must close the body, which is an [io.ReadWriteCloser] after a 101. Nothing is sent if the
// server does not distinguish callers, see [Cluster.CheckCallers].
//
// The path and the query are relative to the root of the API. The method, the body and some
// headers are forwarded; from is the address of the caller for the audit log of the server,
// or "". Single means that the response may be long, and has a connection of its own: on a
// shared connection, a client that does not read would take up to 4 MB of this process. A
// request that asks for another protocol always has one. Only the request's context limits
// the wait.
func (c *Cluster) Forward(req *http.Request, from string, single bool) (*http.Response, error) {
	doing := fmt.Sprintf("%s %s in %s", req.Method, req.URL.Path, c.name)
	if err := c.CheckCallers(req.Context()); err != nil {
		return nil, err
	}
	protocol := upgrade(req.Header)
	transport, err := c.callers.transport(c.config, single || protocol != "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	own, err := c.outgoing(req, req.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	own.ContentLength, own.GetBody = req.ContentLength, req.GetBody
	for name, values := range req.Header {
		if slices.Contains(forwarded, name) || slices.ContainsFunc(forwardedPrefixes, func(p string) bool {
			return strings.HasPrefix(name, p)
		}) {
			own.Header[name] = slices.Clone(values)
		}
	}
	if _, ok := own.Header["User-Agent"]; !ok {
		own.Header["User-Agent"] = nil // otherwise net/http adds its own
	}
	if from != "" {
		own.Header.Set("X-Forwarded-For", from)
	}
	if protocol != "" {
		own.Header.Set("Connection", "Upgrade")
		own.Header.Set("Upgrade", protocol)
		own.Header["Idempotency-Key"] = nil // net/http may use another connection, and sends no such header
		own = own.WithContext(httptrace.WithClientTrace(own.Context(), &newConnection))
	}
	resp, err := exchange(transport, own)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return resp, nil
}

// newConnection makes a request use a connection that no other request has used: it closes
// others before anything is written to them, and net/http takes the next one if the request
// counts as idempotent. kube-apiserver closes the connection of an upgrade that the node has
// refused, and its response does not announce that: the next upgrade would find it closed.
var newConnection = httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
	if info.Reused {
		_ = info.Conn.Close()
	}
}}

// upgrade returns the protocol that a request asks for, "" if it does not.
func upgrade(h http.Header) string {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(name), "upgrade") {
				return h.Get("Upgrade")
			}
		}
	}
	return ""
}

// ErrIndistinctCallers means that the server at the address of a cluster does not distinguish
// callers by their own tokens, or that this cannot be known: a proxy adds credentials to every request,
// or the connection is not encrypted. Each caller would have the rights of the proxy's user.
var ErrIndistinctCallers = errors.New("callers are not distinguished by their tokens")

const (
	// callersAge is how long a good result of a check of the server is used. If further checks
	// have no result, it is used until callersGrace.
	callersAge, callersGrace = time.Minute, 5 * time.Minute
	// callersPause is how long after a check without a good result there is no other.
	callersPause = time.Second
	// callersTimeout is how long a check may take.
	callersTimeout = 5 * time.Second
	// maxCallersAnswer limits the response to a check, in bytes.
	maxCallersAnswer = 64 << 10

	selfReviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	anonymousUser  = "system:anonymous"
)

// callersCheck remembers whether a server tells callers apart. It belongs to one connection, so
// another address or other credentials are checked anew. A server can be replaced by a proxy
// behind the same address, so a result does not last.
type callersCheck struct {
	// send checks the server once.
	send func(context.Context) error
	// turn has a token while a caller uses the fields below.
	turn chan struct{}
	// good is when a check last succeeded, tried when the last one ended, and err its result.
	good, tried time.Time
	err         error
}

func newCallersCheck(send func(context.Context) error) *callersCheck {
	return &callersCheck{send: send, turn: make(chan struct{}, 1)}
}

// check returns the result of the last check, or of another one if that is too old. Others wait
// for the caller that checks.
func (k *callersCheck) check(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if time.Since(k.good) < callersAge {
		return nil
	}
	if time.Since(k.tried) >= callersPause {
		asked, cancel := context.WithTimeout(ctx, callersTimeout)
		defer cancel()
		began := time.Now()
		err := k.send(asked)
		if err != nil && ctx.Err() != nil {
			return err // the caller has left, which says nothing about the server
		}
		k.tried, k.err = time.Now(), err
		switch {
		case err == nil:
			k.good = began
		case errors.Is(err, ErrIndistinctCallers):
			k.good = time.Time{}
		}
	}
	if time.Since(k.good) < callersGrace {
		return nil
	}
	return k.err
}

// CheckCallers returns nil if the server authenticates callers by the tokens that they send, over
// an encrypted connection. It sends a request without a token and one with a random token, over a
// connection without credentials: the server must refuse both, or know their user as anonymous. If
// it does not, the error wraps [ErrIndistinctCallers]. Other errors say that this is not known.
//
// A good result is used for a minute, and for five minutes if the server does not answer further
// checks. There is at most one check at once, and one per second.
func (c *Cluster) CheckCallers(ctx context.Context) error {
	if c.root.Scheme != "https" {
		return fmt.Errorf("cluster %s: %w: its address is not one of https", c.name, ErrIndistinctCallers)
	}
	return c.callers.check.check(ctx)
}

// checkCallers checks the server once.
func (c *Cluster) checkCallers(ctx context.Context) error {
	for _, try := range []struct{ with, authorization string }{
		{"without a token", ""},
		{"with a made-up token", "Bearer watershed-check-" + rand.Text()},
	} {
		code, anonymous, err := c.reviewSelf(ctx, try.authorization)
		switch {
		case err != nil:
			return fmt.Errorf("cluster %s: check of callers: %w", c.name, err)
		case code == http.StatusUnauthorized, anonymous:
		case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
			return fmt.Errorf("cluster %s: check of callers: the server answers %d", c.name, code)
		default:
			return fmt.Errorf("cluster %s: %w: its address answers a request %s with %d, as a proxy does that adds "+
				"credentials of its own", c.name, ErrIndistinctCallers, try.with, code)
		}
	}
	return nil
}

// reviewSelf asks the server, over a connection without credentials, who the user of a request is.
// It returns the code of the response, and whether the user is the anonymous one.
func (c *Cluster) reviewSelf(ctx context.Context, authorization string) (code int, anonymous bool, err error) {
	transport, err := c.callers.transport(c.config, false)
	if err != nil {
		return 0, false, err
	}
	u, err := c.below(&url.URL{Path: selfReviewPath})
	if err != nil {
		return 0, false, err
	}
	body := strings.NewReader(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return 0, false, err
	}
	r.Header.Set("Accept", runtime.ContentTypeJSON)
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	r.Header.Set("User-Agent", rest.DefaultKubernetesUserAgent())
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	resp, err := exchange(transport, r)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCallersAnswer))
	return resp.StatusCode, isAnonymous(resp.StatusCode, text), err
}

// isAnonymous reports whether the response to a self review names the anonymous user: as the
// result, or as the user that may not create one.
func isAnonymous(code int, body []byte) bool {
	switch code {
	case http.StatusForbidden:
		var status struct{ Message string }
		return json.Unmarshal(body, &status) == nil && strings.Contains(status.Message, `User "`+anonymousUser+`"`)
	case http.StatusOK, http.StatusCreated:
		var review struct {
			Status struct{ UserInfo struct{ Username string } }
		}
		return json.Unmarshal(body, &review) == nil && review.Status.UserInfo.Username == anonymousUser
	}
	return false
}
