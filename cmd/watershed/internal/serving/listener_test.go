// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestServer_connectionLimits checks the limits in total and per address of connections with
// authenticated callers, and that closed connections make place.
func TestServer_connectionLimits(t *testing.T) {
	w := start(t, known, func(o *Options) { o.Connections, o.ConnectionsPerAddress = 10, 4 })
	try := func(from string) net.Conn {
		t.Helper()
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
		c, err := d.Dial("tcp", w.address)
		switch {
		case errors.Is(err, syscall.ECONNRESET): // the server is faster than the dialer
			return nil
		case err != nil:
			t.Skipf("cannot connect from %s: %v", from, err) // other systems have only 127.0.0.1
		}
		secure := tls.Client(c, w.config("http/1.1"))
		_ = secure.SetDeadline(time.Now().Add(5 * time.Second))
		if secure.Handshake() != nil {
			c.Close()
			return nil
		}
		_, _ = io.WriteString(secure, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
		if code, _ := read(t, resp, err); code != http.StatusOK {
			t.Errorf("a request is answered with %d", code)
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
	if open["127.0.0.1"] != 4 || open["127.0.0.2"] != 4 || open["127.0.0.3"] != 2 || s.Connections != 10 ||
		s.Addresses != 3 || s.Refused != 8 {
		t.Errorf("%v are open, %+v", open, s)
	}
	for _, c := range all {
		c.Close()
	}
	expect.Soon(t, "all connections are closed", func() bool { return w.Stats().Connections == 0 })
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
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::",
		"2001:db8:1:2::1": "2001:db8:1:2::", "::1": "::1",
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
