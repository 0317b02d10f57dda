// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

// command is a connection to a command that ends, with its last output, when the connection is
// closed.
type command struct {
	output chan string
	closed sync.Once
}

func (c *command) Read(b []byte) (int, error) {
	text, ok := <-c.output
	if !ok {
		return 0, io.EOF
	}
	return copy(b, text), nil
}

func (*command) Write(b []byte) (int, error) { return len(b), nil }

func (c *command) Close() error {
	c.closed.Do(func() {
		select {
		case c.output <- "the end":
			time.Sleep(20 * time.Millisecond) // it is passed on meanwhile
		case <-time.After(time.Second): // it is not read
		}
		close(c.output)
	})
	return nil
}

// TestTunnel_cutOff checks that a client which is cut off does not receive the output that the
// command has written because of that: it would look as if the command were complete.
func TestTunnel_cutOff(t *testing.T) {
	var tracker respond.Tracker
	began := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := tracker.Begin(w)
		defer p.End()
		p.OnBegin(func() { close(began) })
		if err := respond.Tunnel(p, r, &command{output: make(chan string)}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn,
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(reader, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	<-began
	tracker.Disconnect()
	if got, _ := io.ReadAll(reader); len(got) > 0 {
		t.Errorf("the client has received %q", got)
	}
}
