// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
)

// listenOptions are the flags about certificates, connections and the end of the server.
type listenOptions struct {
	certFile, keyFile         string
	hosts                     []string
	connections, perAddress   int
	shutdownDelay, shutdownBy time.Duration
}

func (o *listenOptions) declare(keys *config.Set) {
	keys.String(&o.certFile, "tls.certFile", "tls-cert-file", "", "a `file` with the server's certificate and those of its issuers, in PEM; changes of its content take effect within seconds (default: a certificate of the authority in the state folder)")
	keys.String(&o.keyFile, "tls.keyFile", "tls-key-file", "", "a `file` with the key of --tls-cert-file, in PEM")
	keys.Strings(&o.hosts, "tls.hosts", "tls-san", nil, "host `names` and addresses of this server for the certificate of its own authority (default: the address it listens on, or those of this machine)")
	keys.Int(&o.connections, "connections.max", "max-connections", 0, fmt.Sprintf("how many connections may be open; at the limit, those without an authenticated caller are closed first (default %d, or three quarters of the file descriptors)", serving.DefaultConnections)).
		AtLeast(0, "use 0 for the default").Reloads()
	keys.Int(&o.perAddress, "connections.maxPerAddress", "max-connections-per-address", serving.DefaultConnectionsPerAddress, "how many connections of one address may be open; clients behind a proxy share its address").
		AtLeast(0, "use 0 for the default").Reloads()
	keys.Duration(&o.shutdownDelay, "shutdown.delay", "shutdown-delay", 0, "how long to go on serving after /readyz has begun to fail, so that load balancers notice").
		AtLeast(0, "use 0 for no delay").Reloads()
	keys.Duration(&o.shutdownBy, "shutdown.grace", "shutdown-grace", serving.DefaultGrace, "how long requests other than watches may take to finish at the end").
		AtLeast(0, "use 0 for the default").Reloads()
}

// validate refuses a certificate without its key.
func (o *listenOptions) validate() error {
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-key-file: one of them is missing")
	}
	return nil
}

// openFiles opens the files with the certificate and the key.
func (o *listenOptions) openFiles(logger *slog.Logger) (*serving.Files, error) {
	files, err := serving.OpenFiles(o.certFile, o.keyFile, logger)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
	}
	return files, nil
}

// certificates returns the server's certificates, and the authority that has signed them
// unless they are from files. names are the hosts at which clients reach the listener.
func (o *listenOptions) certificates(l net.Listener, s *state, logger *slog.Logger) (certs serving.Certificates, ca *serving.Authority, names []string, err error) {
	if names, err = serving.Hosts(l, o.hosts); err != nil {
		return nil, nil, nil, err
	}
	if o.certFile != "" {
		files, err := o.openFiles(logger)
		return files, nil, names, err
	}
	ca, created, err := serving.OpenAuthority(s.authorityFile(), &serving.AuthorityOptions{Hosts: names, Logger: logger})
	if err != nil {
		return nil, nil, nil, err
	}
	if created {
		logger.Info("created a certificate authority: clients need the output of watershed kubeconfig", "file", s.authorityFile())
	}
	return ca, ca, names, nil
}

// maxWrite limits the bytes of a request that is passed on. It is the limit of kube-apiserver.
const maxWrite = 3 << 20

// serverOptions returns the options of the server. If requests are passed on, writes must fit.
func (o *listenOptions) serverOptions(certs serving.Certificates, passThrough bool, logger *slog.Logger) *serving.Options {
	opts := &serving.Options{
		Certificates: certs, StrictTransport: o.certFile != "",
		Connections: o.connections, ConnectionsPerAddress: o.perAddress,
		LongRunning: isWatch, ReadinessDelay: o.shutdownDelay, Grace: o.shutdownBy, Logger: logger,
	}
	if passThrough {
		opts.MaxBody = maxWrite
	}
	return opts
}

// limits returns the limits of the server that can change while it runs.
func (o *listenOptions) limits() serving.Limits {
	return serving.Limits{Connections: o.connections, ConnectionsPerAddress: o.perAddress, ReadinessDelay: o.shutdownDelay, Grace: o.shutdownBy}
}

// isWatch reports whether a request is a watch or follows a log, by the rule of
// kube-apiserver. One that it does not recognize ends with the grace period.
func isWatch(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	query := r.URL.Query()
	for _, name := range []string{"watch", "follow"} {
		if values, ok := query[name]; ok && values[0] != "0" && values[0] != "false" {
			return true
		}
	}
	return false
}
