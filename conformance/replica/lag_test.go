// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// watchLag is how much later than the API server sends them the events of watches arrive at
// a replica behind [startLagging]. It is longer than a client needs to send its next request,
// and shorter than the time that the replica waits for the writes of a user.
const watchLag = 300 * time.Millisecond

// startLagging runs a proxy in front of the API server that delays the events of watches,
// and returns the administrator's access through it. With it, a read that does not wait for
// the copy is stale for certain, and not only now and then.
func startLagging(t *testing.T, c *kubetest.Cluster) *rest.Config {
	t.Helper()
	config := c.Config()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Has("watch") {
				r.Body = newLagging(r.Body)
			}
			return nil
		},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The proxy of net/http waits for the rest of a body after the API server has refused
		// the request, and the client sends no rest of a request that was refused.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config.Host = server.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return config
}

// lagging delays what it reads from a body by watchLag.
type lagging struct {
	body   io.ReadCloser
	arrive chan arrival
	rest   []byte
	closed chan struct{}
	reader sync.WaitGroup
}

// arrival is the result of one read.
type arrival struct {
	at   time.Time
	data []byte
	err  error
}

func newLagging(body io.ReadCloser) *lagging {
	l := &lagging{body: body, arrive: make(chan arrival, 4096), closed: make(chan struct{})}
	l.reader.Go(func() {
		for {
			b := make([]byte, 32<<10)
			n, err := body.Read(b)
			select {
			case l.arrive <- arrival{time.Now(), b[:n:n], err}:
			case <-l.closed:
				return
			}
			if err != nil {
				return
			}
		}
	})
	return l
}

func (l *lagging) Read(b []byte) (int, error) {
	if len(l.rest) > 0 {
		n := copy(b, l.rest)
		l.rest = l.rest[n:]
		return n, nil
	}
	select {
	case a := <-l.arrive:
		select {
		case <-time.After(time.Until(a.at.Add(watchLag))):
		case <-l.closed:
			return 0, http.ErrBodyReadAfterClose
		}
		n := copy(b, a.data)
		l.rest = a.data[n:]
		return n, a.err
	case <-l.closed:
		return 0, http.ErrBodyReadAfterClose
	}
}

// Close closes the body and waits until it is not read any more.
func (l *lagging) Close() error {
	close(l.closed)
	err := l.body.Close()
	l.reader.Wait()
	return err
}
