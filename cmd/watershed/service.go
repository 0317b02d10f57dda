// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"
)

// grace is how long requests may take to finish when the service ends.
const grace = 5 * time.Second

// endpoint is a server and its listener.
type endpoint struct {
	listener net.Listener
	server   *http.Server
}

// service is a set of endpoints and parts that run together. If one fails, all end.
type service struct {
	endpoints []endpoint
	parts     []func(context.Context) error
}

// newEndpoint returns the endpoint of the replica. Every process on this machine can be a
// client.
func newEndpoint(l net.Listener, handler http.Handler, ca *authority, logger *slog.Logger) endpoint {
	return endpoint{l, &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{GetCertificate: ca.serve, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		// Whole requests have no timeouts: watches are long, and the replica disconnects
		// clients that do not read.
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          250,
			MaxReceiveBufferPerConnection: 64 << 10,
			MaxReceiveBufferPerStream:     64 << 10,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
		// Errors that clients cause are logged with level Debug.
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}
}

// newProfileEndpoint returns the endpoint of Go's profiles, without TLS.
func newProfileEndpoint(l net.Listener, logger *slog.Logger) endpoint {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return endpoint{l, &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}
}

func (e endpoint) serve() error {
	if e.server.TLSConfig != nil {
		return e.server.ServeTLS(e.listener, "", "")
	}
	return e.server.Serve(e.listener)
}

// run runs everything until ctx ends or a part fails, and returns the error of that part.
// Then it accepts no more connections and cancels the contexts of requests, which ends
// watches. Other requests have a grace period. The parts that they read from end after
// that.
func (s *service) run(ctx context.Context) error {
	requests, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var running sync.WaitGroup
	for _, part := range s.parts {
		running.Go(func() {
			if err := part(parts); err != nil {
				stop(err)
			}
		})
	}
	for _, e := range s.endpoints {
		e.server.BaseContext = func(net.Listener) context.Context { return requests }
		running.Go(func() {
			if err := e.serve(); !errors.Is(err, http.ErrServerClosed) {
				stop(err)
			}
		})
	}
	<-requests.Done()
	s.shutdown()
	end()
	running.Wait()
	if err := context.Cause(requests); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (s *service) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var closing sync.WaitGroup
	for _, e := range s.endpoints {
		closing.Go(func() {
			if e.server.Shutdown(ctx) != nil {
				_ = e.server.Close() // the grace period is over
			}
		})
	}
	closing.Wait()
}
