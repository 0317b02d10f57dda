// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"net"

	"github.com/watershed-project/watershed/replica"
)

// listenLoopback listens on an address that only this machine reaches. Any other is
// refused: everybody who can connect reads everything.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, notLoopback(address)
	}
	l, err := replica.ListenConfig().Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	// A name is what the machine says it is.
	if !loopbackIP(l).IsLoopback() {
		_ = l.Close()
		return nil, notLoopback(address)
	}
	return l, nil
}

// loopbackIP is the address that a listener has.
func loopbackIP(l net.Listener) net.IP {
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		return tcp.IP
	}
	return nil
}

func notLoopback(address string) error {
	return fmt.Errorf("listen on %s: not a loopback address, and there is no access control yet: who can connect can read everything; use 127.0.0.1, ::1 or localhost", address)
}
