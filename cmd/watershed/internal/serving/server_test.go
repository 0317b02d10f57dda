// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/internal/expect"
)

func TestMain(m *testing.M) {
	if target := os.Getenv(attackerVariable); target != "" {
		attackFromChild(target)
	}
	goleak.VerifyTestMain(m)
}

// runningServer is a running server and what its clients need.
type runningServer struct {
	*Server
	address string
	roots   *x509.CertPool
	// end ends the server and waits for it.
	end func()
}

// start runs a server with a handler on loopback, until the test ends.
func start(t *testing.T, handler http.HandlerFunc, adjust func(*Options)) *runningServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, l, handler, adjust)
}

// startOn is start for a listener.
func startOn(t *testing.T, l net.Listener, handler http.HandlerFunc, adjust func(*Options)) *runningServer {
	t.Helper()
	ca, _ := openAuthority(t, filepath.Join(t.TempDir(), "authority.pem"), time.Now)
	opts := &Options{
		Certificates: ca, Logger: quiet,
		LongRunning: func(r *http.Request) bool { return r.URL.Path == "/watch" },
	}
	if adjust != nil {
		adjust(opts)
	}
	s, err := New(l, handler, opts)
	if err != nil {
		t.Fatal(err)
	}
	w := &runningServer{Server: s, address: l.Addr().String(), roots: x509.NewCertPool()}
	w.roots.AppendCertsFromPEM(ca.Bundle())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.end)
	return w
}

// config returns the TLS configuration of a client that speaks one protocol.
func (w *runningServer) config(protocol string) *tls.Config {
	return &tls.Config{RootCAs: w.roots, ServerName: "localhost", NextProtos: []string{protocol}}
}

// client returns an HTTP client with connections of its own.
func (w *runningServer) client(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots}, Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// dial opens a TLS connection.
func (w *runningServer) dial(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", w.address, w.config(protocol))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// read returns the status and the body of a response.
func read(t *testing.T, resp *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestServer_handshake checks the TLS settings: versions, protocols, that clients of every
// authority may connect, and that sessions are not resumed.
func TestServer_handshake(t *testing.T) {
	seen := make(chan int, 10)
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		seen <- len(r.TLS.PeerCertificates)
		ok(rw, r)
	}, nil)
	old := w.config("http/1.1")
	old.MaxVersion = tls.VersionTLS11
	old.MinVersion = tls.VersionTLS10
	if c, err := tls.Dial("tcp", w.address, old); err == nil {
		c.Close()
		t.Error("a client with TLS 1.1 is accepted")
	}
	foreign, err := newSigner(loopback(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := foreign.issue(loopback(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := w.config("http/1.1")
		cfg.MinVersion, cfg.MaxVersion = version, version
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(10)
		cfg.GetClientCertificate = func(i *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(i.AcceptableCAs) > 0 {
				t.Errorf("the server names authorities: %q", i.AcceptableCAs)
			}
			return leaf, nil
		}
		for range 2 {
			c, err := tls.Dial("tcp", w.address, cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			text, err := io.ReadAll(c)
			if err != nil || !strings.HasSuffix(string(text), "ok") || c.ConnectionState().DidResume || <-seen != 1 {
				t.Errorf("TLS %x: resumed %t, %v, %s", version, c.ConnectionState().DidResume, err, text)
			}
			c.Close()
		}
	}
	for _, protocol := range []string{"h2", "http/1.1"} {
		if got := w.dial(t, protocol).ConnectionState().NegotiatedProtocol; got != protocol {
			t.Errorf("the protocol is %q, want %q", got, protocol)
		}
	}
}

// TestServer_headers checks the headers that keep browsers safe.
func TestServer_headers(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/document" {
				rw.Header().Set("Cache-Control", "public")
				rw.Header().Add("X-Frame-Options", "more")
			}
			ok(rw, r)
		}, func(o *Options) { o.StrictTransport = strict })
		want := map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Cache-Control":           "no-cache, private", "Access-Control-Allow-Origin": "",
			"Strict-Transport-Security": "",
		}
		if strict {
			want["Strict-Transport-Security"] = "max-age=31536000"
		}
		for _, path := range []string{"/document", "/"} {
			resp, err := w.client(t, true).Get("https://" + w.address + path)
			read(t, resp, err)
			for name, value := range want {
				if path == "/document" && name == "Cache-Control" {
					value = "public"
				}
				if got := resp.Header.Get(name); got != value {
					t.Errorf("%s: %s is %q, want %q", path, name, got, value)
				}
			}
			if path == "/" && len(resp.Header["X-Frame-Options"]) != 1 {
				t.Error("a value that one response has added is in another")
			}
		}
	}
}

// TestServer_drain checks the order of the end: readiness first, then watches, then other
// requests, also on connections that a handler has taken over.
func TestServer_drain(t *testing.T) {
	finish, entered, ended := make(chan struct{}), make(chan string, 10), make(chan string, 10)
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		defer func() { ended <- r.URL.Path }()
		switch r.URL.Path {
		case "/watch":
			_ = http.NewResponseController(rw).Flush()
			entered <- r.URL.Path
			<-r.Context().Done()
		case "/list":
			entered <- r.URL.Path
			<-finish
			if r.Context().Err() != nil {
				t.Error("the context of a list has ended")
			}
			ok(rw, r)
		case "/taken":
			c, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			entered <- r.URL.Path
			<-finish
			time.Sleep(1500 * time.Millisecond) // HTTP/2 connections close a second after their last request
			if r.Context().Err() != nil {
				t.Error("the context of a request with a connection of its own has ended")
			}
			_, _ = io.WriteString(c, "taken")
		default:
			ok(rw, r)
		}
	}, func(o *Options) { o.ReadinessDelay, o.Grace = 300*time.Millisecond, 10*time.Second })
	c := w.client(t, true)
	results := make(chan string, 10)
	var clients sync.WaitGroup
	for _, path := range []string{"/watch", "/list"} {
		clients.Go(func() {
			resp, err := c.Get("https://" + w.address + path)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			results <- path + string(text)
		})
		<-entered
	}
	taken := w.dial(t, "http/1.1")
	_, _ = io.WriteString(taken, "GET /taken HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-entered
	get := func(path string) int {
		resp, err := w.client(t, true).Get("https://" + w.address + path)
		code, _ := read(t, resp, err)
		<-ended
		return code
	}
	if code := get("/readyz"); code != 200 {
		t.Errorf("ready: %d", code)
	}
	over := make(chan struct{})
	began := time.Now()
	go func() { w.end(); close(over) }()
	expect.Soon(t, "the server drains", w.draining.Load)
	resp, err := w.client(t, true).Get("https://" + w.address + "/readyz")
	if code, text := read(t, resp, err); code != 500 || !strings.Contains(text, "shutdown") {
		t.Errorf("readyz is %d while the server ends: %s", code, text)
	}
	if code := get("/livez"); code != 200 {
		t.Errorf("livez is %d while the server ends", code)
	}
	if first := <-results; first != "/watch" || time.Since(began) < 300*time.Millisecond {
		t.Errorf("%s ends first, after %v", first, time.Since(began))
	}
	if c, err := net.Dial("tcp", w.address); err == nil {
		c.Close()
		t.Error("the server still accepts connections")
	}
	select {
	case <-over:
		t.Error("the server ends before its requests")
	case <-time.After(100 * time.Millisecond):
	}
	close(finish)
	clients.Wait()
	if list := <-results; list != "/listok" {
		t.Error(list)
	}
	if text, err := bufio.NewReader(taken).ReadString(0); text != "taken" {
		t.Errorf("%s, %v", text, err)
	}
	<-over
}

// TestServer_graceEnds checks that requests that do not end are aborted.
func TestServer_graceEnds(t *testing.T) {
	entered := make(chan struct{})
	w := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}, func(o *Options) { o.Grace = 200 * time.Millisecond })
	failed := make(chan error, 1)
	go func() {
		resp, err := w.client(t, true).Get("https://" + w.address + "/list")
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-entered
	began := time.Now()
	w.end()
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second || <-failed == nil {
		t.Errorf("the server ends after %v", took)
	}
	// The server does not wait for a request whose grace has ended.
	expect.Soon(t, "no request remains", func() bool { return w.Stats().Requests == 0 })
}

// noticingListener calls closing before a connection is closed.
type noticingListener struct {
	net.Listener
	closing func()
}

func (l *noticingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &noticingConn{c, l.closing}, nil
}

type noticingConn struct {
	net.Conn
	closing func()
}

func (c *noticingConn) Close() error {
	c.closing()
	return c.Conn.Close()
}

// TestServer_abortedResponseIsIncomplete checks that the connection of a request that is aborted is
// closed before its context ends: a handler that returns then must not complete its response.
func TestServer_abortedResponseIsIncomplete(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan context.Context, 1)
	var request context.Context
	var early atomic.Bool
	l := &noticingListener{inner, func() {
		if request != nil && request.Err() != nil {
			early.Store(true)
		}
	}}
	w := startOn(t, l, func(w http.ResponseWriter, r *http.Request) {
		entered <- r.Context()
		<-r.Context().Done()
		_, _ = io.WriteString(w, "a part")
	}, func(o *Options) { o.Grace = 50 * time.Millisecond })
	// The client reads nothing until the server has ended: it does not close its side before.
	c := w.dial(t, "http/1.1")
	_, _ = io.WriteString(c, "GET /list HTTP/1.1\r\nHost: localhost\r\n\r\n")
	request = <-entered
	w.end()
	expect.Soon(t, "no request remains", func() bool { return w.Stats().Requests == 0 })
	if early.Load() {
		t.Error("the context of the request ended before its connection was closed")
	}
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
		text, err := io.ReadAll(resp.Body)
		t.Errorf("the response looks complete: %d %q, %v", resp.StatusCode, text, err)
	}
}

// TestServer_youngWatch checks that a watch which has just begun when the server ends lasts long enough
// for client-go to resume it, and that an older one ends at once.
func TestServer_youngWatch(t *testing.T) {
	type end struct {
		watch string
		after time.Duration
	}
	entered, ended := make(chan struct{}, 2), make(chan end, 2)
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		_ = http.NewResponseController(w).Flush()
		entered <- struct{}{}
		<-r.Context().Done()
		ended <- end{r.URL.RawQuery, time.Since(began)}
	}, nil)
	watch := func(name string) {
		resp, err := w.client(t, true).Get("https://" + w.address + "/watch?" + name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		<-entered
	}
	watch("old")
	old := time.Now()
	expect.Soon(t, "the first watch is old", func() bool { return time.Since(old) > leastWatch })
	watch("young")
	w.end()
	if first := <-ended; first.watch != "old" {
		t.Errorf("the %s watch ends first", first.watch)
	}
	if young := <-ended; young.after < leastWatch-50*time.Millisecond || young.after >= DefaultGrace {
		t.Errorf("a young watch lasts %v", young.after)
	}
}
