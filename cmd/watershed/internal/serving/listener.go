// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// crowdedGap is the least time between two log lines about too many connections.
const crowdedGap = time.Minute

// listener bounds the connections of another listener. It accepts a connection that is one
// too many and resets it, so that the client can try another server at once, and so that
// clients of other addresses do not wait behind it in the kernel's queue. An address costs
// about 80 bytes while it has a connection, and a connection about 200.
//
// Connections on which no caller has been authenticated are strangers. If the total is reached,
// the oldest stranger is reset in favour of the new connection. So an attacker without
// credentials cannot keep clients out by holding connections: the attacker would have to open
// all of them anew in the time in which a client authenticates.
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
	// strangers has a *conn for each stranger, the oldest first.
	strangers list.List
	// refused counts the connections that were refused, and displaced the strangers that were
	// reset in favour of others.
	refused, displaced uint64
	// logged is when these were last logged, and the other fields are the counts at that time.
	logged                         time.Time
	loggedRefused, loggedDisplaced uint64
}

func newListener(l net.Listener, opts *Options) *listener {
	return &listener{
		Listener:   l,
		total:      opts.Connections,
		perAddress: opts.ConnectionsPerAddress,
		logger:     opts.Logger,
		addresses:  map[netip.Addr]int{},
	}
}

// Accept returns the next connection that is within the bounds.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, listener: l, address: addressOf(inner)}
		displaced, ok := l.enter(c)
		if displaced != nil {
			reset(displaced.Conn) // its goroutine of net/http notices and ends
		}
		if ok {
			return c, nil
		}
		reset(inner)
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

// enter counts a connection, and reports false if it is one too many. The caller resets the
// displaced connection, if there is one.
func (l *listener) enter(c *conn) (displaced *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.addresses[c.address] >= l.perAddress {
		l.refused++
		l.logLocked(c.address)
		return nil, false
	}
	if oldest := l.strangers.Front(); l.open >= l.total && oldest != nil {
		displaced = oldest.Value.(*conn)
		l.leaveLocked(displaced)
		l.displaced++
		defer l.logLocked(c.address)
	}
	if l.open >= l.total { // all have callers, or the limit was lowered
		l.refused++
		l.logLocked(c.address)
		return displaced, false
	}
	l.open++
	l.addresses[c.address]++
	c.place = l.strangers.PushBack(c)
	return displaced, true
}

// logLocked logs that there are too many connections, with the address of the newest one, unless
// that was logged lately.
func (l *listener) logLocked(address netip.Addr) {
	now := time.Now()
	if now.Sub(l.logged) < crowdedGap {
		return
	}
	l.logger.Warn("too many connections are open: some were refused, or closed before a caller was authenticated",
		"refused", l.refused-l.loggedRefused, "closed", l.displaced-l.loggedDisplaced, "open", l.open, "limit", l.total,
		"address", address.String(), "openOfAddress", l.addresses[address], "limitOfAddress", l.perAddress)
	l.logged, l.loggedRefused, l.loggedDisplaced = now, l.refused, l.displaced
}

// leaveLocked ends the count of a connection. It can be called again.
func (l *listener) leaveLocked(c *conn) {
	if c.left {
		return
	}
	c.left = true
	l.settleLocked(c)
	l.open--
	if l.addresses[c.address]--; l.addresses[c.address] == 0 {
		delete(l.addresses, c.address)
	}
}

// settleLocked removes a connection from the strangers.
func (l *listener) settleLocked(c *conn) {
	if c.place != nil {
		l.strangers.Remove(c.place)
		c.place = nil
	}
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	listener *listener
	address  netip.Addr

	// The listener's mu guards the fields below. place is the place among the strangers, nil if
	// the connection is not one, and left means that the connection is not counted any more.
	place *list.Element
	left  bool
}

// Close closes the connection.
func (c *conn) Close() error {
	defer func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.leaveLocked(c)
	}()
	return c.Conn.Close()
}

type connKey struct{}

// withConn returns a context for the requests on a connection of a listener.
func withConn(ctx context.Context, secure net.Conn) context.Context {
	if t, ok := secure.(*tls.Conn); ok {
		if c, ok := t.NetConn().(*conn); ok {
			return context.WithValue(ctx, connKey{}, c)
		}
	}
	return ctx
}

// Authenticated records that the caller of a request is known. The connection is not closed in
// favour of others from now on. Requests that no [Server] has received are ignored.
func Authenticated(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.settleLocked(c)
	}
}
