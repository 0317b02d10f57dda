// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Proxy is an unreliable network between a client and a server. It passes TCP connections
// on unchanged, encrypted ones too, until a method makes it fail. Methods may be called
// from any goroutine.
type Proxy struct {
	target string
	port   *port
	owned  sync.WaitGroup // every goroutine of the proxy

	network *network

	mu       sync.Mutex // guards all below
	listener net.Listener
	closed   bool
	links    map[*link]struct{}
	accepted int64
	cuts     int   // how many of the next connections are to be truncated
	cutAfter int64 // after how many bytes
}

// ProxyStats counts the traffic of a proxy since it was created.
type ProxyStats struct {
	Accepted int64 // connections
	Active   int64 // connections, now
	Up       int64 // bytes to the server
	Down     int64 // bytes from the server
}

// Proxy puts a proxy in front of the API server for the duration of a test.
func (c *Cluster) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	p, err := NewProxy(c.ports[portAPIServer].addr())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// NewProxy listens on its own loopback port and passes connections on to target, a host
// and port.
func NewProxy(target string) (*Proxy, error) {
	pt, err := reservePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, port: pt, network: newNetwork(), links: map[*link]struct{}{}}
	if err := p.Up(); err != nil {
		pt.release()
		return nil, err
	}
	return p, nil
}

// Addr returns the host and port to connect to. It never changes.
func (p *Proxy) Addr() string { return p.port.addr() }

// Config returns cfg with the address of the proxy. The API server's certificate is valid
// for it.
func (p *Proxy) Config(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Host = (&url.URL{Scheme: "https", Host: p.Addr()}).String()
	return cfg
}

// Cut resets every live connection. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// Vanish closes every live connection to a client without a packet, see [Vanish], and resets
// those to the server. A client notices nothing until it sends bytes or a probe of TCP, which
// the kernel answers with a reset. New connections are accepted.
func (p *Proxy) Vanish() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if err := Vanish(l.client); err != nil {
			return fmt.Errorf("proxy %s: %w", p.Addr(), err)
		}
		l.reset()
	}
	return nil
}

// Down resets every live connection and refuses new ones until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cutLocked()
}

// Up accepts connections again. It returns an error only if the port was lost.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("proxy %s: %w", p.Addr(), net.ErrClosed)
	}
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp4", p.Addr())
	if err != nil {
		return fmt.Errorf("proxy %s: %w", p.Addr(), err)
	}
	p.listener = l
	p.owned.Go(func() { p.accept(l) })
	return nil
}

// Stall stops all bytes, in both directions, until Resume. Connections stay up, even if
// one side closes them, and new ones are accepted: both sides observe only silence.
func (p *Proxy) Stall() { p.network.stall() }

// Resume ends a stall. The bytes that were held back arrive.
func (p *Proxy) Resume() { p.network.resume() }

// Delay delays everything that arrives from now on by d, in each direction. It does not
// limit how many bytes can be in transit.
func (p *Proxy) Delay(d time.Duration) { p.network.setDelay(d) }

// TruncateAfter ends each of the next connections after exactly that many bytes from the
// server, in the middle of a message. The bytes are counted from the start of the
// connection, including TLS. If connections is 0, no more are truncated.
func (p *Proxy) TruncateAfter(bytes int64, connections int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter, p.cuts = bytes, connections
}

// Stats returns the counts up to now.
func (p *Proxy) Stats() ProxyStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	up, down := p.network.counts()
	return ProxyStats{Accepted: p.accepted, Active: int64(len(p.links)), Up: up, Down: down}
}

// Close resets every connection, stops listening and waits for the proxy's
// goroutines. It may be called more than once.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Down()
	p.owned.Wait()
	p.port.release()
}

func (p *Proxy) cutLocked() {
	for l := range p.links {
		l.reset()
	}
}

func (p *Proxy) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely there are no file descriptors left; a moment later there may be
			// one.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.add(l, conn.(*net.TCPConn))
	}
}

// add starts a link for conn, unless its listener was closed meanwhile.
func (p *Proxy) add(from net.Listener, conn *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != from {
		abort(conn)
		return
	}
	k := &link{network: p.network, target: p.target, client: conn, limit: -1}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if p.cuts > 0 {
		p.cuts--
		k.limit = p.cutAfter
	}
	p.accepted++
	p.links[k] = struct{}{}
	p.owned.Go(func() {
		defer p.remove(k)
		k.run()
	})
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
