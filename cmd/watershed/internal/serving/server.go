// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// abortWait is how long the server waits for handlers after it has closed their
// connections.
const abortWait = time.Second

// leastWatch is how long a watch lasts at least when the server ends. client-go takes a watch that ends
// within a second without an event for an error, and lists again instead of resuming.
const leastWatch = 1200 * time.Millisecond

// Server serves HTTPS on one listener. All methods are safe for concurrent use.
type Server struct {
	opts     Options
	listener *listener
	handler  http.Handler
	server   *http.Server
	// requests counts requests that a handler is serving, including those whose
	// connection the handler has taken over.
	requests atomic.Int64
	// draining is set when the server is about to end.
	draining atomic.Bool
	// ending is how the server ends.
	ending atomic.Pointer[ending]
	// watches ends when watches have to.
	watches    context.Context
	endWatches context.CancelFunc
}

// New returns a server. The caller owns the listener until it calls [Server.Run].
func New(l net.Listener, handler http.Handler, opts *Options) (*Server, error) {
	if opts == nil || opts.Certificates == nil {
		return nil, errors.New("serving: no certificates")
	}
	s := &Server{opts: opts.withDefaults(), handler: handler}
	s.listener = newListener(l, &s.opts)
	s.ending.Store(&ending{delay: s.opts.ReadinessDelay, grace: s.opts.Grace})
	s.watches, s.endWatches = context.WithCancel(context.Background())
	s.server = &http.Server{
		Handler:   http.HandlerFunc(s.serve),
		TLSConfig: newTLSConfig(s.opts.Certificates),
		// Handlers call Authenticated, which needs the connection.
		ConnContext: withConn,
		// ReadHeaderTimeout limits the handshake too. Whole requests have no timeouts,
		// because watches are long.
		ReadHeaderTimeout: s.opts.HeaderTimeout,
		IdleTimeout:       s.opts.IdleTimeout,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// A connection keeps a buffer for the largest frame that it has received. The
			// default is 1 MiB.
			MaxReadFrameSize:              16 << 10,
			MaxReceiveBufferPerConnection: 64 << 10,
			MaxReceiveBufferPerStream:     64 << 10,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
			// The replica notices clients that do not read a response. This is for frames
			// that belong to none.
			WriteByteTimeout: time.Minute,
		},
		// Errors that clients cause are logged with level Debug.
		ErrorLog: slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	// Watches end after the listener is closed: their clients connect again at once, and
	// must reach another server.
	s.server.RegisterOnShutdown(s.endWatches)
	return s, nil
}

func newTLSConfig(c Certificates) *tls.Config {
	return &tls.Config{
		GetCertificate:         c.GetCertificate,
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		ClientAuth:             tls.RequestClientCert,
		SessionTicketsDisabled: true, // see the package comment
	}
}

// Limits are the options of a [Server] that can change while it runs.
type Limits struct {
	// Connections and ConnectionsPerAddress bound the connections that are accepted from now
	// on. ReadinessDelay and Grace are for the end of the server. All are those of [Options].
	Connections, ConnectionsPerAddress int
	ReadinessDelay, Grace              time.Duration
}

// Limit changes limits while the server runs. Connections that are open stay open.
func (s *Server) Limit(l Limits) {
	opts := s.opts
	opts.Connections = l.Connections
	opts.ConnectionsPerAddress = l.ConnectionsPerAddress
	opts.ReadinessDelay = l.ReadinessDelay
	opts.Grace = l.Grace
	opts = opts.withDefaults()
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	s.listener.total = opts.Connections
	s.listener.perAddress = opts.ConnectionsPerAddress
	s.ending.Store(&ending{delay: opts.ReadinessDelay, grace: opts.Grace})
}

// ending is how the server ends. It is replaced, not modified.
type ending struct{ delay, grace time.Duration }

// Run serves until ctx ends, and then until requests have ended or their grace period has.
// It returns an error if the listener fails.
func (s *Server) Run(ctx context.Context) error {
	// Requests outlive ctx: they may finish.
	requests, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer s.endWatches()
	s.server.BaseContext = func(net.Listener) context.Context { return requests }
	renewal, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 2)
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.opts.Certificates.Run(renewal); err != nil {
			failed <- fmt.Errorf("server's certificate: %w", err)
		}
	})
	running.Go(func() {
		if err := s.server.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("listener %s: %w", s.listener.Addr(), err)
		}
	})
	var err error
	select {
	case <-ctx.Done():
		s.draining.Store(true)
		select {
		case err = <-failed:
		case <-time.After(s.ending.Load().delay):
		}
	case err = <-failed:
		s.draining.Store(true)
	}
	s.shutdown(abort)
	stop()
	running.Wait()
	return err
}

// shutdown closes the listener, ends watches, waits for other requests, and closes all
// connections.
func (s *Server) shutdown(abort func()) {
	ctx, cancel := context.WithTimeout(context.Background(), s.ending.Load().grace)
	defer cancel()
	_ = s.server.Shutdown(ctx)
	// Shutdown does not wait for connections that a handler has taken over.
	s.waitForRequests(ctx)
	// Connections are closed before the contexts of their requests end. A handler whose context
	// has ended may return at once, and what it has written so far would look like a complete
	// response.
	_ = s.server.Close()
	abort() // for handlers that have taken over their connection
	ctx, cancel = context.WithTimeout(context.Background(), abortWait)
	defer cancel()
	s.waitForRequests(ctx)
}

// waitForRequests waits until no request is served or ctx ends.
func (s *Server) waitForRequests(ctx context.Context) {
	for s.requests.Load() > 0 && timer.Sleep(ctx, 10*time.Millisecond) == nil {
	}
}

// serve calls the handler with the limits of the server.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	defer s.requests.Add(-1)
	setHeaders(w.Header(), s.opts.StrictTransport)
	if s.draining.Load() && r.URL.Path == "/readyz" {
		writeText(w, http.StatusInternalServerError,
			"[-]shutdown failed: the server is about to end\nreadyz check failed\n")
		return
	}
	limited, drop, ok := limitBody(w, r, &s.opts)
	if !ok {
		return
	}
	defer drop()
	if s.opts.LongRunning(limited) {
		ctx, cancel := context.WithCancel(limited.Context())
		defer cancel()
		began, least := time.Now(), leastWatch
		if r.URL.Query().Has("follow") {
			least = 0 // a log cannot be resumed
		}
		defer context.AfterFunc(s.watches, func() {
			_ = timer.Sleep(ctx, least-time.Since(began))
			cancel()
		})()
		limited = limited.WithContext(ctx)
	}
	s.handler.ServeHTTP(w, limited)
}
