// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"bytes"
	"io"
	"net/http"
)

// tunnelBuffer is how many bytes each direction of a tunnel copies at once. A tunnel costs
// two such buffers and three goroutines, besides its connections.
const tunnelBuffer = 8 << 10

// Tunnel answers a request with a 101 and the headers of the response, and then copies
// bytes between its client and another connection, until either of them ends or
// [Tracker.Disconnect] is called. It closes both. A client that does not read for long is
// not cut off: a terminal can be paused. If it returns an error, nothing has been written.
func Tunnel(p *Response, r *http.Request, to io.ReadWriteCloser) error {
	defer to.Close()
	ctx, from, err := p.take(r.Context(), http.StatusSwitchingProtocols)
	if err != nil {
		return err
	}
	defer p.taken.closeTunnel(p.owner)
	if p.begun != nil {
		p.begun()
	}
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = p.Header().Write(&head) // a buffer accepts all writes
	head.WriteString("\r\n")
	if _, err := p.taken.Write(head.Bytes()); err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	done := make(chan struct{}, 2)
	link := func(w io.Writer, r io.Reader) {
		// Only Read and Write: no buffer of the connection's choice.
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, tunnelBuffer))
		done <- struct{}{}
	}
	go link(to, from)
	go link(p.taken.Conn, to)
	left := 2
	select {
	case <-ctx.Done():
	case <-done:
		left--
	}
	// What was read has been written, so nothing is lost by closing both.
	_ = to.Close()
	_ = p.taken.Close()
	for ; left > 0; left-- {
		<-done
	}
	return nil
}

// closeTunnel closes a connection that was taken over.
func (c *connection) closeTunnel(owner *Tracker) {
	defer owner.taken.Done()
	c.end()
	_ = c.Close()
}

// Untracked returns a writer of the response that flushes every write, and whose client may
// pause for any time, as that of a log may. It returns the error of a write.
func (p *Response) Untracked() io.Writer { return &untracked{p} }

type untracked struct{ p *Response }

func (u *untracked) Write(b []byte) (int, error) {
	n, err := u.p.w.Write(b)
	if err == nil {
		err = u.p.control.Flush()
	}
	return n, err
}
