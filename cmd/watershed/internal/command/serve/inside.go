// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
)

// insideServers serve what is about the program itself, without TLS and access control.
type insideServers []insideServer

type insideServer struct {
	*http.Server
	listener net.Listener
}

// openInside returns the servers of Go's profiles and of the metrics, as far as the settings have
// addresses for them. The caller closes the servers, unless it runs them.
func (o *runner) openInside(
	ctx context.Context, page http.Handler, logger *slog.Logger,
) (all insideServers, err error) {
	errorLog := slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	profiles, err := o.ListenProfiles(ctx)
	if err != nil {
		return nil, err
	}
	if profiles != nil {
		logger.Info("profiles", "url", "http://"+profiles.Addr().String()+"/debug/pprof/")
		all = append(all, insideServer{&http.Server{
			Handler: profilesHandler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: errorLog,
		}, profiles})
	}
	metrics, err := o.ListenMetrics(ctx)
	if err != nil {
		all.close()
		return nil, err
	}
	if metrics != nil {
		logger.Info("metrics", "url", "http://"+metrics.Addr().String()+access.MetricsPath)
		mux := http.NewServeMux()
		mux.Handle("GET "+access.MetricsPath, page)
		all = append(all, insideServer{&http.Server{
			Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: errorLog,
		}, metrics})
	}
	return all, nil
}

// profilesHandler serves Go's profiles.
func profilesHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// close closes the listeners of servers that have not run.
func (all insideServers) close() {
	for _, s := range all {
		_ = s.listener.Close()
	}
}

// run serves until ctx ends.
func (s insideServer) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
