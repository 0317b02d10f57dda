// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// Listening are the flags about certificates, connections and the end of the server.
type Listening struct {
	CertFile, keyFile         string
	hosts                     []string
	Connections, PerAddress   int
	ShutdownDelay, ShutdownBy time.Duration
}

func (o *Listening) declare(in config.Section) {
	in.String(&o.CertFile, "tls.certFile", "tls-cert-file", "", "a `file` with the server's certificate and those "+
		"of its issuers, in PEM; changes of its content take effect within seconds (default: a certificate of the "+
		"authority in the state directory)")
	in.String(&o.keyFile, "tls.keyFile", "tls-key-file", "", "a `file` with the key of --tls-cert-file, in PEM")
	in.Strings(&o.hosts, "tls.hosts", "tls-san", nil, "host `names` and addresses of this server for the "+
		"certificate of its own authority (default: the address it listens on, or those of this machine)")
	in.Int(&o.Connections, "connections.max", "max-connections", 0,
		fmt.Sprintf("how many connections may be open; at the limit, those without an authenticated caller are "+
			"closed first (default %d, or three quarters of the file descriptors)", serving.DefaultConnections)).
		AtLeast(0, "use 0 for the default").Reloads()
	in.Int(&o.PerAddress, "connections.maxPerAddress", "max-connections-per-address",
		serving.DefaultConnectionsPerAddress, "how many connections of one address may be open; clients behind a "+
			"proxy share its address").
		AtLeast(0, "use 0 for the default").Reloads()
	in.Duration(&o.ShutdownDelay, "shutdown.delay", "shutdown-delay", 0,
		"how long to go on serving after /readyz has begun to fail, so that load balancers notice").
		AtLeast(0, "use 0 for no delay").Reloads()
	in.Duration(&o.ShutdownBy, "shutdown.grace", "shutdown-grace", serving.DefaultGrace,
		"how long requests other than watches may take to finish at the end").
		AtLeast(0, "use 0 for the default").Reloads()
}

// validate refuses a certificate without its key.
func (o *Listening) validate() error {
	if (o.CertFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-key-file: one of them is missing")
	}
	return nil
}

// openFiles opens the files with the certificate and the key.
func (o *Listening) openFiles(logger *slog.Logger) (*serving.Files, error) {
	files, err := serving.OpenFiles(o.CertFile, o.keyFile, logger)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
	}
	return files, nil
}

// Certificates returns the server's certificates, and the authority that has signed them
// unless they are from files. names are the hosts at which clients reach the listener.
func (o *Listening) Certificates(
	l net.Listener, s *state.Dir, logger *slog.Logger,
) (certs serving.Certificates, ca *serving.Authority, names []string, err error) {
	if names, err = serving.Hosts(l, o.hosts); err != nil {
		return nil, nil, nil, err
	}
	if o.CertFile != "" {
		files, err := o.openFiles(logger)
		return files, nil, names, err
	}
	ca, created, err := serving.OpenAuthority(s.AuthorityFile(),
		&serving.AuthorityOptions{Hosts: names, Logger: logger})
	if err != nil {
		return nil, nil, nil, err
	}
	if created {
		logger.Info("created a certificate authority: clients need the output of watershed kubeconfig", "file",
			s.AuthorityFile())
	}
	return ca, ca, names, nil
}

// Limits returns the limits of the server that can change while it runs.
func (o *Listening) Limits() serving.Limits {
	return serving.Limits{Connections: o.Connections, ConnectionsPerAddress: o.PerAddress,
		ReadinessDelay: o.ShutdownDelay, Grace: o.ShutdownBy}
}
