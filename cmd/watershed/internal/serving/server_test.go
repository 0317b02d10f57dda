// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if target := os.Getenv(attackerVariable); target != "" {
		attackFromChild(target)
	}
	goleak.VerifyTestMain(m)
}

// world is a running server and what its clients need.
type world struct {
	*Server
	address string
	roots   *x509.CertPool
	// end ends the server and waits for it.
	end func()
}

// start runs a server with a handler on loopback, until the test ends.
func start(t *testing.T, handler http.HandlerFunc, adjust func(*Options)) *world {
	t.Helper()
	ca, _ := openAuthority(t, filepath.Join(t.TempDir(), "authority.pem"), time.Now)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	w := &world{Server: s, address: l.Addr().String(), roots: x509.NewCertPool()}
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
func (w *world) config(protocol string) *tls.Config {
	return &tls.Config{RootCAs: w.roots, ServerName: "localhost", NextProtos: []string{protocol}}
}

// client returns an HTTP client with connections of its own.
func (w *world) client(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots}, Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// dial opens a TLS connection.
func (w *world) dial(t *testing.T, protocol string) *tls.Conn {
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
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Cache-Control": "no-cache, private", "Access-Control-Allow-Origin": "", "Strict-Transport-Security": "",
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

// TestServer_bodies checks that bodies are bounded in size and time, and that a body that
// the handler does not read does not keep its connection.
func TestServer_bodies(t *testing.T) {
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/unread" {
			ok(rw, r)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		// The client stays connected: the context must not end with the body's deadline.
		select {
		case <-r.Context().Done():
			rw.WriteHeader(http.StatusGone)
		case <-time.After(400 * time.Millisecond):
			_, _ = io.WriteString(rw, strings.Repeat("x", int(n>>10)))
		}
	}, func(o *Options) { o.BodyTimeout = 200 * time.Millisecond })
	for _, http2 := range []bool{false, true} {
		c := w.client(t, http2)
		for size, want := range map[int]int{1: 200, 64 << 10: 200, 64<<10 + 1: 413} {
			resp, err := c.Post("https://"+w.address, "application/json", bytes.NewReader(make([]byte, size)))
			if code, _ := read(t, resp, err); code != want {
				t.Errorf("http2 %t: a body of %d bytes is %d, want %d", http2, size, code, want)
			}
		}
		// A body without a declared size.
		resp, err := c.Post("https://"+w.address, "application/json", io.MultiReader(bytes.NewReader(make([]byte, 64<<10+1))))
		want := map[bool]int{false: 411, true: 400}[http2]
		if code, _ := read(t, resp, err); code != want {
			t.Errorf("http2 %t: an undeclared large body is %d, want %d", http2, code, want)
		}
		slow, write := io.Pipe()
		began := time.Now()
		request, err := http.NewRequest(http.MethodPost, "https://"+w.address, slow)
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = 10
		resp, err = c.Do(request)
		write.Close()
		if code, _ := read(t, resp, err); code != 400 || time.Since(began) > 2*time.Second {
			t.Errorf("http2 %t: a slow body is %d after %v", http2, code, time.Since(began))
		}
	}
	c := w.dial(t, "http/1.1")
	began := time.Now()
	_, _ = io.WriteString(c, "POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")
	text, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(text), "200 OK") || time.Since(began) > 2*time.Second {
		t.Errorf("an unread body: %v after %v: %s", err, time.Since(began), text)
	}
}

// TestServer_slowHeaders checks that a client that does not finish its handshake or its
// headers is disconnected.
func TestServer_slowHeaders(t *testing.T) {
	w := start(t, ok, func(o *Options) { o.HeaderTimeout, o.IdleTimeout = 300*time.Millisecond, 300*time.Millisecond })
	half, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	_, _ = half.Write([]byte{22, 3, 1, 2, 0, 1}) // the beginning of a ClientHello
	headers := w.dial(t, "http/1.1")
	_, _ = io.WriteString(headers, "GET / HTTP/1.1\r\nHost: loc")
	idle := w.dial(t, "h2")
	_, _ = idle.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0))
	continued := w.dial(t, "h2")
	// A preface, SETTINGS, and HEADERS that are to be continued.
	_, _ = continued.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82))
	for name, c := range map[string]net.Conn{"handshake": half, "headers": headers, "idle": idle, "continued headers": continued} {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the client is not disconnected", name)
		}
	}
	if s := w.Stats(); s.Connections != 0 {
		t.Errorf("%+v", s)
	}
}

// TestServer_smuggling checks that requests whose end another server could see elsewhere
// are refused, and that the connection is closed after them.
func TestServer_smuggling(t *testing.T) {
	served := make(chan string, 100)
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		served <- r.URL.Path
		ok(rw, r)
	}, nil)
	const next = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, request := range map[string]string{
		"length and chunks":       "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":             "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
		"a signed length":         "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +0\r\n\r\n",
		"a list of lengths":       "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0, 0\r\n\r\n",
		"other encodings":         "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"two encodings":           "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an obscured encoding":    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"space before the colon":  "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length : 0\r\n\r\n",
		"NUL in a header":         "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
		"a first line folded":     "GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
		"two hosts":               "GET / HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
		"no host":                 "GET / HTTP/1.1\r\n\r\n",
		"a host with a slash":     "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"another version":         "GET / HTTP/3.0\r\nHost: localhost\r\n\r\n",
		"CR in the path":          "GET /\rX: HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"large headers":           "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n",
		"many headers":            "GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X: y\r\n", 20<<10) + "\r\n",
		"a long path":             "GET /" + strings.Repeat("x", 80<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"chunks":                  "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"chunk extensions":        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 80<<10) + "\r\na\r\n0\r\n\r\n",
		"a bare LF after a chunk": "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := w.dial(t, "http/1.1")
			go func() { _, _ = io.WriteString(c, request+next) }()
			text, err := io.ReadAll(c) // until the server closes the connection
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			refused := strings.HasPrefix(string(text), "HTTP/1.1 4") || strings.HasPrefix(string(text), "HTTP/1.1 5")
			if len(served) > 0 || !refused {
				t.Errorf("%d requests are served; the response is %.200q", len(served), text)
			}
			for len(served) > 0 {
				<-served
			}
		})
	}
	for name, request := range map[string]string{
		"a folded header":      "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
		"lines with a bare LF": "GET / HTTP/1.1\nHost: localhost\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := w.dial(t, "http/1.1")
			_, _ = io.WriteString(c, request+"GET /next HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			text, err := io.ReadAll(c)
			// net/http accepts these. They do not change where a request ends.
			if n := strings.Count(string(text), "HTTP/1.1 200 OK"); err != nil || n != 2 || len(served) != 2 || <-served != "/" || <-served != "/next" {
				t.Errorf("%d requests are served, %v: %s", n, err, text)
			}
		})
	}
}

// TestServer_connectionLimits checks the limits in total and per address, and that closed
// connections make place.
func TestServer_connectionLimits(t *testing.T) {
	w := start(t, ok, func(o *Options) { o.Connections, o.ConnectionsPerAddress = 10, 4 })
	try := func(from string) net.Conn {
		t.Helper()
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
		c, err := d.Dial("tcp", w.address)
		if err != nil {
			t.Skipf("cannot connect from %s: %v", from, err) // other systems have only 127.0.0.1
		}
		secure := tls.Client(c, w.config("http/1.1"))
		_ = secure.SetDeadline(time.Now().Add(5 * time.Second))
		if secure.Handshake() != nil {
			c.Close()
			return nil
		}
		return secure
	}
	open := map[string]int{}
	var all []net.Conn
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		for range 6 {
			if c := try(from); c != nil {
				open[from]++
				all = append(all, c)
				defer c.Close()
			}
		}
	}
	s := w.Stats()
	if open["127.0.0.1"] != 4 || open["127.0.0.2"] != 4 || open["127.0.0.3"] != 2 || s.Connections != 10 || s.Addresses != 3 || s.Refused != 8 {
		t.Errorf("%v are open, %+v", open, s)
	}
	for _, c := range all {
		c.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); w.Stats().Connections > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if s := w.Stats(); s.Connections != 0 || s.Addresses != 0 {
		t.Errorf("%+v", s)
	}
	if c := try("127.0.0.1"); c == nil {
		t.Error("a connection is refused although none is open")
	} else {
		c.Close()
	}
}

// TestAddressOf checks that a client with a network of IPv6 addresses counts once.
func TestAddressOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "2001:db8:1:2::1": "2001:db8:1:2::", "::1": "::1",
	} {
		if got := addressOf(fakeConn{remote: &net.TCPAddr{IP: net.ParseIP(remote)}}).String(); got != want {
			t.Errorf("%s counts for %s, want %s", remote, got, want)
		}
	}
}

type fakeConn struct {
	net.Conn
	remote net.Addr
}

func (c fakeConn) RemoteAddr() net.Addr { return c.remote }

// exhausted is a listener of a process without file descriptors.
type exhausted struct {
	net.Listener
	mu    sync.Mutex
	tries int
}

func (l *exhausted) Accept() (net.Conn, error) {
	l.mu.Lock()
	l.tries++
	l.mu.Unlock()
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// TestServer_withoutFileDescriptors checks that the server neither ends nor spins when it
// cannot accept connections.
func TestServer_withoutFileDescriptors(t *testing.T) {
	ca, _ := openAuthority(t, filepath.Join(t.TempDir(), "authority.pem"), time.Now)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &exhausted{Listener: inner}
	s, err := New(l, http.HandlerFunc(ok), &Options{Certificates: ca, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
	if l.tries < 2 || l.tries > 20 {
		t.Errorf("%d tries in 500 ms", l.tries)
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
	for deadline := time.Now().Add(5 * time.Second); !w.draining.Load() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
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
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second || <-failed == nil || w.Stats().Requests != 0 {
		t.Errorf("the server ends after %v, %+v", took, w.Stats())
	}
}
