// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/replica"
)

// ListenReplica listens on the address of the replica.
func (o *Settings) ListenReplica(ctx context.Context) (net.Listener, error) {
	listener, err := replica.ListenConfig().Listen(ctx, "tcp", o.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen: %w: choose another address with --listen", err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// ListenProfiles listens on the address of Go's profiles. It returns nil if they are not served.
func (o *Settings) ListenProfiles(ctx context.Context) (net.Listener, error) {
	if o.pprof == "" {
		return nil, nil
	}
	l, err := listenLoopback(ctx, o.pprof)
	if err != nil {
		return nil, fmt.Errorf("profiles: %w", err)
	}
	return l, nil
}

// ListenMetrics listens on the address of --metrics-listen. It returns nil if there is none. The
// address must name a host: with ":9090" every network of the machine could read the names of all
// clusters, and the operator may not have meant that.
func (o *Settings) ListenMetrics(ctx context.Context) (net.Listener, error) {
	if o.metricsListen == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(o.metricsListen)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %s: %w", o.metricsListen, err)
	}
	if host == "" {
		return nil, fmt.Errorf("--metrics-listen %s: name the host, because metrics are served there without "+
			"access control: 127.0.0.1 for this machine, the address of the pod, or 0.0.0.0 for every network",
			o.metricsListen)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", o.metricsListen)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	}
	return l, nil
}

// listenLoopback listens on a loopback address. It rejects other addresses: it is for
// profiles, which contain parts of the mirrored objects and have no access control.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if !serving.IsLoopbackHost(host) {
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
	return fmt.Errorf("listen on %s: not a loopback address, and every client that connects could read the memory "+
		"of the program; use 127.0.0.1, ::1 or localhost", address)
}
