// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// forwarded are the request headers that [Cluster.Forward] sends. All others are dropped:
// those of a hop, those by which a proxy claims to know a user (X-Remote-User), and cookies.
// A client cannot have one of these dropped by naming it in its Connection header.
var forwarded = []string{
	"Accept", "Accept-Encoding", "Authorization", "Content-Type", "If-Modified-Since", "If-None-Match", "Origin", "Range",
	"Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Traceparent", "Tracestate", "User-Agent", "X-Stream-Protocol-Version",
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
		anonymous.UserAgent, anonymous.Timeout, anonymous.DisableCompression = "", 0, true
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
// server does not tell callers apart, see [Cluster.CheckCallers].
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
		if slices.Contains(forwarded, name) || slices.ContainsFunc(forwardedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
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
