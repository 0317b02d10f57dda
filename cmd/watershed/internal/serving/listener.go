// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// refusalGap is the least time between two log lines about refused connections.
const refusalGap = time.Minute

// listener bounds the connections of another listener. It accepts a connection that is one
// too many and resets it, so that the client can try another server at once, and so that
// clients of other addresses do not wait behind it in the kernel's queue. An address costs
// about 80 bytes while it has a connection, and a connection about 100.
//
// If the process has no file descriptor left, Accept fails, and net/http repeats it after 5
// ms to 1 s.
type listener struct {
	net.Listener
	total, perAddress int
	logger            *slog.Logger

	mu        sync.Mutex
	open      int
	addresses map[netip.Addr]int
	refused   uint64
	// logged is when refused connections were last logged, and unlogged how many there
	// were since.
	logged   time.Time
	unlogged int
}

func newListener(l net.Listener, opts *Options) *listener {
	return &listener{Listener: l, total: opts.Connections, perAddress: opts.ConnectionsPerAddress, logger: opts.Logger, addresses: map[netip.Addr]int{}}
}

// Accept returns the next connection that is within the bounds.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(c)
		if !l.enter(address) {
			reset(c)
			continue
		}
		return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
	}
}

// addressOf returns the address that a connection counts for: the network of a client with
// IPv6, and the zero address if it does not use TCP.
func addressOf(c net.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if address.Is6() && !address.IsLoopback() {
		if network, err := address.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return address
}

// reset closes a connection without a final exchange of packets, which would keep it in the
// kernel.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// enter counts a connection, and reports false if it is one too many.
func (l *listener) enter(address netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open < l.total && l.addresses[address] < l.perAddress {
		l.open++
		l.addresses[address]++
		return true
	}
	l.refused++
	l.unlogged++
	if now := time.Now(); now.Sub(l.logged) >= refusalGap {
		l.logger.Warn("connections refused: too many are open", "refused", l.unlogged,
			"open", l.open, "limit", l.total, "address", address.String(), "openOfAddress", l.addresses[address], "limitOfAddress", l.perAddress)
		l.logged, l.unlogged = now, 0
	}
	return false
}

func (l *listener) leave(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.addresses[address]--; l.addresses[address] == 0 {
		delete(l.addresses, address)
	}
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
