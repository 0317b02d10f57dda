// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
)

// profiles serves Go's profiles, without TLS. The listener is nil if they are not served.
type profiles struct {
	listener net.Listener
	logger   *slog.Logger
}

// openProfiles listens on the address of Go's profiles, if there is one.
func openProfiles(ctx context.Context, o *settings.Settings, logger *slog.Logger) (*profiles, error) {
	l, err := o.ListenProfiles(ctx)
	if err != nil {
		return nil, err
	}
	if l != nil {
		logger.Info("profiles", "url", "http://"+l.Addr().String()+"/debug/pprof/")
	}
	return &profiles{l, logger}, nil
}

// close closes the listener, if run has not.
func (p *profiles) close() {
	if p.listener != nil {
		_ = p.listener.Close()
	}
}

// run serves the profiles until ctx ends.
func (p *profiles) run(ctx context.Context) error {
	if p.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(p.logger.Handler(), slog.LevelDebug),
	}
	return serveUntil(ctx, server, p.listener)
}
