// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"net"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/replica"
)

// listenLoopback listens on a loopback address. It rejects other addresses: it is for
// profiles, which contain parts of the mirrored objects and have no access control.
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
	// The resolver of this machine may map the name localhost to another address.
	if !serving.IsLoopback(l) {
		_ = l.Close()
		return nil, notLoopback(address)
	}
	return l, nil
}

func notLoopback(address string) error {
	return fmt.Errorf("listen on %s: not a loopback address, and every client that connects could read the memory of the program; use 127.0.0.1, ::1 or localhost", address)
}
