// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestPassThrough_lastBytes checks that everything which the cluster has sent reaches a client
// that is still sending, such as kubectl exec -i whose command has ended.
func TestPassThrough_lastBytes(t *testing.T) {
	w, origins := newPassing(t, 1)
	path := w.root(0) + "/api/v1/namespaces/n/pods/p/exec?command=sh&mine"
	text := strings.Repeat("0123456789abcdef", 3000)
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		time.Sleep(20 * time.Millisecond) // the client has filled the buffers
		_, _ = io.WriteString(c, text)
		_ = c.Close() // received bytes are unread, so the kernel resets the connection
		return true
	})
	for range 20 {
		c := w.dial()
		resp, r := w.upgrade(c, path)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for {
				if _, err := c.Write(make([]byte, 16<<10)); err != nil {
					return
				}
			}
		}()
		got, err := readSlowly(r)
		if string(got) != text {
			t.Errorf("%d of %d bytes have arrived: %v", len(got), len(text), err)
		}
		_ = c.Close()
		<-sent
	}
}

// readSlowly reads until the end, in small parts.
func readSlowly(r *bufio.Reader) (all []byte, err error) {
	part := make([]byte, 4<<10)
	for {
		n, err := r.Read(part)
		all = append(all, part[:n]...)
		if err != nil {
			return all, err
		}
		time.Sleep(time.Millisecond) // a slow client
	}
}

// TestPassThrough_connectionsAreBounded checks the limits of connections that stay open, for
// one user and for a cluster, and that a connection which has ended makes room for another.
func TestPassThrough_connectionsAreBounded(t *testing.T) {
	w, origins := newPassing(t, 2)
	for _, o := range origins {
		o.answers(func(rw http.ResponseWriter, r *http.Request) bool {
			switch {
			case !isRead(r):
				return false
			case r.Header.Get("Upgrade") != "":
				echo(rw, "SPDY/3.1")
			default:
				rw.Header().Set("Content-Type", "text/plain")
				_, _ = io.WriteString(rw, "a line\n")
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			}
			return true
		})
	}
	open := func(cluster int, user, path string) (*http.Response, net.Conn) {
		c := w.dial()
		upgrade := ""
		if strings.HasPrefix(path, "exec") {
			upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
		}
		_, err := fmt.Fprintf(c,
			"GET %s/api/v1/namespaces/n/pods/p/%s&mine HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n",
			w.root(cluster), path, user, upgrade)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp, c
	}
	refused := func(user, want string) {
		t.Helper()
		for _, path := range []string{"exec?command=sh", "log?follow=true"} {
			resp, c := open(0, user, path)
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), want) ||
				resp.Header.Get("Retry-After") != "1" {
				t.Errorf("%s of %s: %d %s, want %q", path, user, resp.StatusCode, text, want)
			}
			_ = c.Close()
		}
	}
	for range 3 {
		var conns []net.Conn
		for i := range passedConnections {
			user, path := []string{"a", "b"}[2*i/passedConnections], []string{"exec?command=sh", "log?follow=true"}[i%2]
			expect.Eventually(t, 10*time.Second, func() error {
				resp, c := open(0, user, path)
				if resp.StatusCode == http.StatusTooManyRequests {
					return errors.New("a connection that has ended still counts")
				}
				conns = append(conns, c)
				return nil
			})
			if i == passedConnections/2-1 {
				refused("a", "2 connections of this user")
			}
		}
		refused("c", "4 connections are")
		if resp, c := open(1, "a", "exec?command=sh"); resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("the other cluster: %d", resp.StatusCode)
		} else {
			_ = c.Close()
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
