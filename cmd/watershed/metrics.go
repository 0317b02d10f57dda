// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
)

// metricsServer serves the metrics without TLS and access control. The listener is nil if
// they are served only at the address of the replica.
type metricsServer struct {
	listener net.Listener
	page     http.Handler
	logger   *slog.Logger
}

// openMetrics listens on the address of --metrics-listen, unless it is "". The address must
// name a host: with ":9090" every network of the machine could read the names of all
// clusters, and the operator may not have meant that.
func openMetrics(ctx context.Context, address string, page http.Handler, logger *slog.Logger) (*metricsServer, error) {
	if address == "" {
		return &metricsServer{}, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %s: %w", address, err)
	}
	if host == "" {
		return nil, fmt.Errorf("--metrics-listen %s: name the host, because metrics are served there without access control: 127.0.0.1 for this machine, the address of the pod, or 0.0.0.0 for every network", address)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	}
	logger.Info("metrics", "url", "http://"+l.Addr().String()+access.MetricsPath)
	return &metricsServer{l, page, logger}, nil
}

// close closes the listener, if run has not.
func (m *metricsServer) close() {
	if m.listener != nil {
		_ = m.listener.Close()
	}
}

// run serves the metrics until ctx ends.
func (m *metricsServer) run(ctx context.Context) error {
	if m.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+access.MetricsPath, m.page)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 5 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(m.logger.Handler(), slog.LevelDebug),
	}
	return serveUntil(ctx, server, m.listener)
}
