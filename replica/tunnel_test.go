// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
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
		time.Sleep(time.Millisecond)
	}
}
