// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
)

// front is a proxy in front of a real API server that ends TLS, so that it can change
// responses. Credentials pass through.
type front struct {
	// expired makes its certificate one that has expired.
	expired bool
	// change changes a response, before its body is sent.
	change func(*http.Response) error
	// delay delays the requests that measure how fast the server is. With all of them the test
	// would take long.
	delay time.Duration
	// watches is how long a watch may stay open while breaks is true.
	watches time.Duration
	breaks  *atomic.Bool
}

// start runs the proxy for the duration of the test, and returns the configuration of a
// client of the cluster.
func (f front) start(t *testing.T, cluster *rest.Config) *rest.Config {
	t.Helper()
	a, err := authority.New("front")
	expect.NoError(t, err)
	end := time.Now().Add(30 * 24 * time.Hour)
	if f.expired {
		end = time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	}
	der, key, err := a.ServingUntil(end, []string{"localhost"}, net.IPv4(127, 0, 0, 1))
	expect.NoError(t, err)
	transport, err := rest.TransportFor(&rest.Config{
		Host:            cluster.Host,
		TLSClientConfig: rest.TLSClientConfig{CAData: cluster.CAData, ServerName: cluster.ServerName},
	})
	expect.NoError(t, err)
	target, err := url.Parse(cluster.Host)
	expect.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			repeatable(r.Out)
		},
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: f.change,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			time.Sleep(f.delay) // a slow cluster
		}
		if f.breaks != nil && f.breaks.Load() && strings.Contains(r.URL.RawQuery, "watch=") &&
			!strings.Contains(r.URL.RawQuery, "sendInitialEvents") {
			ctx, cancel := context.WithTimeout(r.Context(), f.watches)
			defer cancel()
			r = r.WithContext(ctx) // its end aborts the response
		}
		proxy.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	cfg := rest.CopyConfig(cluster)
	cfg.Host, cfg.CAData, cfg.ServerName = s.URL, a.PEM(), ""
	return cfg
}

// repeatable makes the transport able to send a request again. kube-apiserver closes a connection
// after an anonymous request, and all clients of the proxy share one: without this, another request
// that was being sent is answered with 502.
func repeatable(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength < 0 || r.ContentLength > 1<<20 {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
}
