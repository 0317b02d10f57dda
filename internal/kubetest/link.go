// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// link is one connection through a proxy: two sockets and, per direction, a reader and a
// writer with a short queue between them, so that a delay does not limit the throughput.
type link struct {
	network *network
	target  string // host and port of the server
	client  *net.TCPConn
	limit   int64 // bytes to pass from the server; -1 for all

	// ctx ends when the link was reset or has ended.
	ctx    context.Context
	cancel context.CancelFunc
}

const (
	chunkBytes  = 32 << 10
	queueChunks = 64
)

// chunk is the result of one read.
type chunk struct {
	data  []byte
	reset bool // the connection broke after data
	due   time.Time
}

func (l *link) run() {
	defer l.cancel()

	// A stalled network does not carry the connection request either.
	if !l.waitFlow() {
		abort(l.client)
		return
	}
	var d net.Dialer
	conn, err := d.DialContext(l.ctx, "tcp4", l.target)
	if err != nil {
		abort(l.client)
		return
	}
	server := conn.(*net.TCPConn)

	// Blocked reads and writes do not observe ctx: closing the sockets unblocks them.
	var closer sync.WaitGroup
	closer.Go(func() {
		<-l.ctx.Done()
		abort(l.client)
		abort(server)
	})
	defer closer.Wait()
	defer l.cancel()

	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(server, l.client, -1, func(n int) { l.network.count(n, 0) }) })
	pumps.Go(func() { l.pump(l.client, server, l.limit, func(n int) { l.network.count(0, n) }) })
	pumps.Wait()
	// After an orderly end the last bytes may still be in transit.
	_ = l.client.Close()
	_ = server.Close()
}

// reset ends the link at once; run does the cleanup.
func (l *link) reset() { l.cancel() }

// pump copies bytes until the end of from, and then closes to. After limit bytes, if
// there is a limit, it ends the link.
func (l *link) pump(to, from *net.TCPConn, limit int64, count func(int)) {
	queue := make(chan chunk, queueChunks)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		l.read(queue, from)
	})
	defer reader.Wait()

	for c := range queue {
		if !l.waitUntil(c.due) || !l.waitFlow() {
			return
		}
		truncate := limit >= 0 && int64(len(c.data)) >= limit
		if truncate {
			c.data = c.data[:limit]
		}
		n, err := to.Write(c.data)
		count(n)
		if err != nil || c.reset {
			l.cancel()
			return
		}
		if truncate {
			// An orderly end of the TCP connection lets the bytes before it arrive, which
			// a reset could overtake.
			_ = to.Close()
			l.cancel()
			return
		}
		if limit >= 0 {
			limit -= int64(n)
		}
	}
	if l.waitFlow() {
		_ = to.CloseWrite()
	}
}

func (l *link) read(queue chan<- chunk, from *net.TCPConn) {
	for {
		data := make([]byte, chunkBytes)
		n, err := from.Read(data)
		reset := err != nil && !errors.Is(err, io.EOF)
		if n > 0 || reset {
			_, delay := l.network.conditions()
			select {
			case queue <- chunk{data[:n], reset, time.Now().Add(delay)}:
			case <-l.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// waitFlow waits until a stall ends. It returns false if the link ended first.
func (l *link) waitFlow() bool {
	for {
		flowing, _ := l.network.conditions()
		select {
		case <-l.ctx.Done():
			return false
		case <-flowing:
		}
		// Stalled again, or ended, since?
		if now, _ := l.network.conditions(); now == flowing {
			return l.ctx.Err() == nil
		}
	}
}

func (l *link) waitUntil(due time.Time) bool { return timer.Sleep(l.ctx, time.Until(due)) == nil }

// abort closes with a reset instead of an orderly end.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
