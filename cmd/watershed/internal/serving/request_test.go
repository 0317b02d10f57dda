// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

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
		for size, want := range map[int]int{1: 200, 64 << 10: 200, 64<<10 + 1: 413, 1 << 20: 413} {
			resp, err := c.Post("https://"+w.address, "application/json", bytes.NewReader(make([]byte, size)))
			if code, _ := read(t, resp, err); code != want {
				t.Errorf("http2 %t: a body of %d bytes is %d, want %d", http2, size, code, want)
			}
		}
		for range 20 {
			resp, err := c.Post("https://"+w.address+"/unread", "application/json",
				bytes.NewReader(make([]byte, 64<<10)))
			if code, _ := read(t, resp, err); code != 200 {
				t.Errorf("http2 %t: a body that the handler does not read is %d", http2, code)
			}
		}
		// A body without a declared size.
		resp, err := c.Post("https://"+w.address, "application/json",
			io.MultiReader(bytes.NewReader(make([]byte, 64<<10+1))))
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
		if code, _ := read(t, resp, err); code != 400 || time.Since(began) > 8*time.Second {
			t.Errorf("http2 %t: a slow body is %d after %v", http2, code, time.Since(began))
		}
	}
	c := w.dial(t, "http/1.1")
	began := time.Now()
	_, _ = io.WriteString(c, "POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")
	text, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(text), "200 OK") || time.Since(began) > 8*time.Second {
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
	_, _ = continued.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0,
		0, 0, 0, 1, 0x82))
	for name, c := range map[string]net.Conn{
		"handshake": half, "headers": headers, "idle": idle, "continued headers": continued,
	} {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the client is not disconnected", name)
		}
	}
	expect.Soon(t, "no connection is open", func() bool { return w.Stats().Connections == 0 })
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
		"length and chunks": "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n0\r\n\r\n",
		"two lengths": "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: " +
			"5\r\n\r\n",
		"a signed length":   "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +0\r\n\r\n",
		"a list of lengths": "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0, 0\r\n\r\n",
		"other encodings": "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, " +
			"identity\r\n\r\n0\r\n\r\n",
		"two encodings": "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an obscured encoding": "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"\x0bchunked\r\n\r\n0\r\n\r\n",
		"space before the colon": "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length : 0\r\n\r\n",
		"NUL in a header":        "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
		"a first line folded":    "GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
		"two hosts":              "GET / HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
		"no host":                "GET / HTTP/1.1\r\n\r\n",
		"a host with a slash":    "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"another version":        "GET / HTTP/3.0\r\nHost: localhost\r\n\r\n",
		"CR in the path":         "GET /\rX: HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"large headers": "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 80<<10) +
			"\r\n\r\n",
		"many headers": "GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X: y\r\n", 20<<10) +
			"\r\n",
		"a long path": "GET /" + strings.Repeat("x", 80<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"chunks": "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"chunk extensions": "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
			strings.Repeat("x", 80<<10) + "\r\na\r\n0\r\n\r\n",
		"a bare LF after a chunk": "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n",
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
			if n := strings.Count(string(text), "HTTP/1.1 200 OK"); err != nil || n != 2 || len(served) != 2 ||
				<-served != "/" || <-served != "/next" {
				t.Errorf("%d requests are served, %v: %s", n, err, text)
			}
		})
	}
}
