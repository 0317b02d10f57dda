// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
)

// metricsServer serves the metrics without TLS and access control. The listener is nil if
// they are served only at the address of the replica.
type metricsServer struct {
	listener net.Listener
	page     http.Handler
	logger   *slog.Logger
}

// openMetrics listens on the address of --metrics-listen, if there is one.
func openMetrics(
	ctx context.Context, o *settings.Settings, page http.Handler, logger *slog.Logger,
) (*metricsServer, error) {
	l, err := o.ListenMetrics(ctx)
	if err != nil {
		return nil, err
	}
	if l != nil {
		logger.Info("metrics", "url", "http://"+l.Addr().String()+access.MetricsPath)
	}
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
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout:    5 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(m.logger.Handler(), slog.LevelDebug),
	}
	return serveUntil(ctx, server, m.listener)
}
