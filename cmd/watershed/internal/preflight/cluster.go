// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptrace"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

const (
	// requestTimeout limits the first request to a cluster, which includes the time that a
	// credential plugin takes.
	requestTimeout = 15 * time.Second
	// clusterTimeout limits all checks of a cluster.
	clusterTimeout = 2 * time.Minute
	// expiresSoon is how long before the end of a certificate there is a warning.
	expiresSoon = 7 * 24 * time.Hour
)

// Cluster runs all checks of a cluster, until one fails without which the next ones make no
// sense.
func Cluster(ctx context.Context, e fleet.Entry, opts *Options) []Result {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	i := &inspection{opts: opts, entry: e}
	i.about = remedy.Subject{
		Program: opts.Program, Cluster: e.Name, Context: opts.Contexts[e.Name], Kubeconfig: opts.Kubeconfig,
	}
	i.name()
	if !i.credentials() {
		return i.all
	}
	defer i.cluster.CloseIdleConnections()
	if !i.connection(ctx) || !i.authentication(ctx) {
		return i.all
	}
	i.resources(ctx)
	i.clock()
	i.speed()
	i.version()
	return i.all
}

// name checks that no other source has a cluster of the same name.
func (i *inspection) name() {
	if len(i.entry.Shadowed) > 0 {
		i.bad(checkName, fleet.NameTaken,
			"another cluster of this name is left out; it is in "+strings.Join(i.entry.Shadowed, ", "))
		return
	}
	i.good(checkName, "no other source has a cluster of this name")
}

// credentials checks the configuration without a request. It reports whether there is one.
func (i *inspection) credentials() bool {
	cfg, err := i.entry.Config, i.entry.Err
	if err == nil && cfg != nil {
		i.cluster, err = kube.FromConfig(cfg, &kube.Options{Name: i.entry.Name})
	}
	if err == nil {
		err = checkPlugin(cfg)
	}
	if err != nil {
		i.bad(checkCredentials, string(fleet.NoCredentials), err.Error())
		return false
	}
	expires, err := clientExpiry(cfg)
	switch {
	case err != nil:
		i.bad(checkCredentials, string(fleet.NoCredentials), "client certificate: "+err.Error())
	case !expires.IsZero() && time.Now().After(expires):
		i.bad(checkCredentials, string(fleet.Unauthorized),
			"the client certificate expired at "+expires.UTC().Format(time.RFC3339))
	case !expires.IsZero() && time.Until(expires) < expiresSoon:
		i.problem(Warning, checkCredentials, string(fleet.Unauthorized),
			"the client certificate expires at "+expires.UTC().Format(time.RFC3339))
	default:
		i.good(checkCredentials, kindOf(cfg))
	}
	return true
}

// checkPlugin returns an error if the credential plugin cannot be run.
func checkPlugin(cfg *rest.Config) error {
	if cfg.ExecProvider == nil {
		return nil
	}
	if _, err := exec.LookPath(cfg.ExecProvider.Command); err != nil {
		return fmt.Errorf("credential plugin: %w; install it: %s", err, cfg.ExecProvider.InstallHint)
	}
	return nil
}

// kindOf returns the kind of credentials, without their content.
func kindOf(cfg *rest.Config) string {
	switch {
	case cfg.ExecProvider != nil:
		return "credential plugin " + cfg.ExecProvider.Command
	case cfg.BearerTokenFile != "":
		return "token in a file"
	case cfg.BearerToken != "":
		return "token"
	case len(cfg.CertData) > 0 || cfg.CertFile != "":
		return "client certificate"
	}
	return "none"
}

// clientExpiry returns when the client certificate ends, zero if there is none.
func clientExpiry(cfg *rest.Config) (time.Time, error) {
	text := cfg.CertData
	if len(text) == 0 && cfg.CertFile != "" {
		var err error
		if text, err = os.ReadFile(cfg.CertFile); err != nil {
			return time.Time{}, err
		}
	}
	if len(text) == 0 {
		return time.Time{}, nil
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}, errors.New("it is not in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err
	}
	return cert.NotAfter, nil
}

// connection checks that the API server can be reached and that its certificate is valid. It
// reports whether they are.
func (i *inspection) connection(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var (
		mu   sync.Mutex
		ends time.Time // of the server's certificate
	)
	traced := httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{TLSHandshakeDone: func(s tls.ConnectionState, _ error) {
			mu.Lock()
			defer mu.Unlock()
			if len(s.PeerCertificates) > 0 {
				ends = s.PeerCertificates[0].NotAfter
			}
		}})
	var err error
	i.probe, err = fleet.NewProbe(traced, i.cluster)
	if err != nil && i.probe.At.IsZero() {
		i.bad(checkConnection, string(fleet.TroubleOf(err)), rootOf(err))
		return false
	}
	mu.Lock()
	defer mu.Unlock()
	address := i.entry.Config.Host
	switch why := i.cluster.Unverified(); {
	case why != "":
		i.problem(Warning, checkConnection, remedy.UnverifiedServer,
			fmt.Sprintf("%s answers; %s, so whoever can redirect connections receives the credentials", address, why))
	case ends.IsZero(), time.Until(ends) > expiresSoon:
		i.good(checkConnection, address+" answers")
	default:
		i.problem(Warning, checkConnection, string(fleet.CertificateExpired),
			fmt.Sprintf("%s answers; its certificate expires at %s", address, ends.UTC().Format(time.RFC3339)))
	}
	return true
}

// clock checks that the clocks agree.
func (i *inspection) clock() {
	if i.probe.IsSkewed() {
		word := "ahead"
		if i.probe.Skew < 0 {
			word = "behind"
		}
		i.bad(checkClock, fleet.ClockSkew,
			fmt.Sprintf("the clock of the API server is %s %s", i.probe.Skew.Abs(), word))
		return
	}
	i.good(checkClock, fmt.Sprintf("differs by %s", i.probe.Skew.Abs()))
}

// speed checks how long the API server takes for a request on an open connection.
func (i *inspection) speed() {
	took := i.probe.Took.Round(time.Millisecond)
	if i.probe.IsSlow() {
		i.problem(Warning, checkSpeed, fleet.Slow,
			fmt.Sprintf("the API server took %s to answer a request for its version", took))
		return
	}
	i.good(checkSpeed, fmt.Sprintf("a request took %s", took))
}

// version checks that the cluster is not newer than the types of this program.
func (i *inspection) version() {
	if i.probe.IsNewer() {
		i.problem(Warning, checkVersion, fleet.ClusterIsNewer,
			fmt.Sprintf("the cluster has Kubernetes %s, and this program has the types of 1.%d", i.probe.Version,
				fleet.KubernetesMinor))
		return
	}
	i.good(checkVersion, "Kubernetes "+i.probe.Version)
}
