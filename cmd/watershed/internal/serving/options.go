// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/defaults"
)

// Certificates provide the server's certificate: [Files] or [Authority].
type Certificates interface {
	// GetCertificate returns the certificate for a handshake.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run renews the certificate until ctx ends.
	Run(ctx context.Context) error
}

// Options configure a [Server]. The zero values are the defaults, except for
// Certificates, which must be set.
type Options struct {
	Certificates Certificates
	// StrictTransport adds Strict-Transport-Security to responses. A browser then refuses
	// plain HTTP to this host name, at all ports. Set it if the certificate is one that
	// browsers trust.
	StrictTransport bool

	// Connections limits the open connections. Default 20,000, or three quarters of the
	// process's file descriptors if that is less: the others are for connections to
	// clusters. At the limit, a new connection takes the place of the oldest one on which no
	// caller has been authenticated, see [Authenticated].
	Connections int
	// ConnectionsPerAddress limits the open connections of one remote address. For IPv6 it
	// is a /64 network, of which a client usually has all addresses. Default 1,000. If
	// clients connect through a proxy or NAT, they share its address.
	ConnectionsPerAddress int
	// HeaderTimeout limits the TLS handshake and the headers of an HTTP/1 request.
	// Default 10 s.
	HeaderTimeout time.Duration
	// BodyTimeout limits how long a client takes to send a body. Default 10 s.
	BodyTimeout time.Duration
	// MaxBody limits the bytes of a body. Default 64 KB.
	MaxBody int64
	// IdleTimeout limits how long a connection stays open without a request.
	// Default 2 minutes.
	IdleTimeout time.Duration

	// LongRunning reports whether a request is a watch or a followed log, which ends at once when the server
	// does. Default: none is, so all of them have Grace.
	LongRunning func(*http.Request) bool
	// ReadinessDelay is how long the server goes on after it has begun to report that it is
	// not ready. Default 0.
	ReadinessDelay time.Duration
	// Grace is how long requests may take to finish after that. Default 10 s.
	Grace time.Duration

	// Logger receives all messages. Default: slog.Default().
	Logger *slog.Logger
}

// The defaults of [Options].
const (
	DefaultConnections           = 20_000
	DefaultConnectionsPerAddress = 1_000
	DefaultGrace                 = 10 * time.Second
)

func (o *Options) withDefaults() Options {
	opts := *o
	defaults.Set(&opts.Connections, min(DefaultConnections, maxFiles()/4*3))
	defaults.Set(&opts.ConnectionsPerAddress, DefaultConnectionsPerAddress)
	defaults.Set(&opts.HeaderTimeout, 10*time.Second)
	defaults.Set(&opts.BodyTimeout, 10*time.Second)
	defaults.Set(&opts.MaxBody, 64<<10)
	defaults.Set(&opts.IdleTimeout, 2*time.Minute)
	if opts.LongRunning == nil {
		opts.LongRunning = func(*http.Request) bool { return false }
	}
	defaults.Set(&opts.Grace, DefaultGrace)
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	return opts
}
