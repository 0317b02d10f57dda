// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"time"
)

// tunnelBuffer is how many bytes each direction of a tunnel copies at once. A tunnel costs
// two such buffers and three goroutines, besides its connections.
const tunnelBuffer = 8 << 10

// Tunnel answers a request with a 101 and the headers of the response, and then copies
// bytes between its client and another connection, until either of them ends or
// [Tracker.Disconnect] is called. It closes both. A client that does not read for long is
// not cut off: a terminal can be paused. If it returns an error, nothing has been written.
//
// The last bytes of the other connection, such as the exit code of a command, reach a client
// that is still sending.
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
	up, down := make(chan bool, 1), make(chan bool, 1)
	go func() { up <- pump(to, from) }()
	go func() { down <- pump(p.taken.Conn, to) }()
	upEnded, downEnded, complete := false, false, false
	select {
	case <-ctx.Done():
	case clientEnded := <-up:
		if upEnded = true; !clientEnded {
			// The other side accepts nothing, and its last bytes may not have been read.
			select {
			case <-ctx.Done():
			case complete = <-down:
				downEnded = true
			}
		}
	case complete = <-down:
		downEnded = true
	}
	if !complete {
		// The client is closed first. The command that loses its input may end well, and
		// must not look complete to a client that has not ended the input.
		_ = p.taken.Close()
	}
	_ = to.Close()
	if !upEnded {
		if complete {
			// The goroutine reads from the client, which may send nothing.
			_ = p.taken.SetReadDeadline(time.Now())
		}
		<-up
	}
	if !downEnded {
		<-down
	}
	if complete {
		p.taken.linger(from)
	}
	return nil
}

// pump copies until reading or writing fails, and reports whether everything that was read
// has been written.
func pump(w io.Writer, r io.Reader) bool {
	buffer := make([]byte, tunnelBuffer)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return false
			}
		}
		if err != nil {
			return true
		}
	}
}

// linger ends the bytes to the client, and then waits for the client to close the connection,
// up to closeTimeout. If a connection is closed while received bytes are unread, the kernel
// resets it, and drops bytes that it has not sent yet.
func (c *connection) linger(from io.Reader) {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return
	}
	_ = c.SetDeadline(time.Now().Add(closeTimeout))
	if secure.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, from)
	}
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
	u.p.sent.Add(uint64(n))
	u.p.written += int64(n)
	if err == nil {
		err = u.p.control.Flush()
	}
	return n, err
}
