// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package apiclient finds a server and the credentials for it, and sends requests to it.
//
// [Options] are the flags that select a server. A [Target] is a server: the server of this machine, which
// the state directory names, or a server at an address. A [Connection] is a target with credentials.
package apiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

const (
	// maxClusters limits, in bytes, how much of a server's list of clusters is read.
	maxClusters = 16 << 20
	// targetTimeout limits one request to a server. It does not include the time that a
	// credential plugin takes, which may wait for the user.
	targetTimeout = 10 * time.Second
)

// Target is the server that a kubeconfig is for.
type Target struct {
	// URL is the address without a final slash.
	URL string
	// Authority has the certificates that verify the server, in PEM. Nil means those of
	// the system.
	Authority []byte
	// private is true if the authority belongs to this server only.
	private bool
	// Owner is the owner's token, "" if the server has no owner.
	Owner string
	// Home, Kubeconfig and Contexts are what the server has announced, see [state.Server].
	Home                 string
	Kubeconfig, Contexts []string
	// nobody means that the server has announced that it has neither a home cluster nor an issuer: only its owner
	// is authenticated below /fleet.
	nobody bool
	// config is the client configuration of the context that names the server, nil if none does.
	config *rest.Config
}

// LocalTarget returns the server that uses a state directory. Its authority is that of the
// folder unless a file is given.
func LocalTarget(s state.Dir, authorityFile string) (*Target, error) {
	if err := s.Find(); err != nil {
		return nil, err
	}
	running, err := s.Server()
	if err != nil {
		return nil, err
	}
	t := &Target{URL: "https://" + running.Address, Home: running.Home, Kubeconfig: running.Kubeconfig,
		Contexts: running.Contexts, nobody: running.Home == "" && !running.Issuer}
	if t.Authority, err = readCertificates(authorityFile); err != nil {
		return nil, err
	}
	if authorityFile == "" && !running.OtherAuthority {
		t.Authority, err = serving.ReadBundle(s.AuthorityFile())
		if errors.Is(err, fs.ErrNotExist) {
			return nil, state.ErrNotServing
		}
		if err != nil {
			return nil, err
		}
		t.private = true
	}
	host, _, err := net.SplitHostPort(running.Address)
	if err != nil {
		return nil, fmt.Errorf("state: address of the server: %w", err)
	}
	// Only a server on a loopback address has an owner. The folder may still have the token
	// of an earlier server.
	if net.ParseIP(host).IsLoopback() {
		t.Owner, err = s.Owner()
	}
	return t, err
}

// remoteTarget returns the server at an address. Its authority is that of the system unless
// a file is given.
func remoteTarget(address, authorityFile string) (*Target, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, errors.New("--server: not a valid URL; use one such as https://replica.example:7443")
	case u.Scheme != "https":
		return nil, fmt.Errorf("--server: scheme %q: credentials are only sent over https", u.Scheme)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("--server: a URL with a password, query or fragment; use one such as " +
			"https://replica.example:7443")
	}
	authority, err := readCertificates(authorityFile)
	if err != nil {
		return nil, err
	}
	return &Target{URL: strings.TrimRight(u.String(), "/"), Authority: authority}, nil
}

// readCertificates returns the certificates in a file, nil if the path is empty. It leaves
// out everything else, because the file may also have the authority's key.
func readCertificates(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--certificate-authority: %w", err)
	}
	var found []byte
	for _, der := range certificates(text) {
		if _, err := x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("--certificate-authority: %s: %w", path, err)
		}
		found = append(found, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	if found == nil {
		return nil, fmt.Errorf("--certificate-authority: %s has no certificates in PEM", path)
	}
	return found, nil
}

// certificates returns the certificates in PEM text, in DER.
func certificates(text []byte) (found [][]byte) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return found
		}
		if block.Type == "CERTIFICATE" {
			found = append(found, block.Bytes)
		}
		text = rest
	}
}

// Owns reports whether an entry of a kubeconfig belongs to this server: it has an address
// below the server's, or a certificate of the server's own authority, which stays the same
// when the server listens elsewhere.
func (t *Target) Owns(cluster *clientcmdapi.Cluster) bool {
	if cluster == nil {
		return false
	}
	if t.private && shareCertificate(t.Authority, cluster.CertificateAuthorityData) {
		return true
	}
	theirs, err := url.Parse(cluster.Server)
	ours, _ := url.Parse(t.URL) // it was parsed before
	if err != nil || theirs.Scheme != ours.Scheme || hostPort(theirs) != hostPort(ours) {
		return false
	}
	path := strings.TrimPrefix(theirs.Path, ours.Path)
	return strings.HasPrefix(theirs.Path, ours.Path) && (path == "/fleet" || strings.HasPrefix(path, "/clusters/"))
}

// shareCertificate reports whether two texts in PEM have a certificate in common.
func shareCertificate(a, b []byte) bool {
	return slices.ContainsFunc(certificates(a), func(one []byte) bool {
		return slices.ContainsFunc(certificates(b), func(other []byte) bool { return bytes.Equal(one, other) })
	})
}

// hostPort returns the host and port of a https URL, in the form that all equal ones have.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// transport returns a transport without credentials. The caller closes its connections.
func (t *Target) transport() (*http.Transport, error) {
	trusted, err := x509.SystemCertPool()
	if t.Authority != nil {
		trusted, err = x509.NewCertPool(), nil
		trusted.AppendCertsFromPEM(t.Authority)
	}
	if err != nil {
		return nil, fmt.Errorf("certificates of the system: %w", err)
	}
	return &http.Transport{
		Proxy:           http.ProxyFromEnvironment, // as kubectl does; never for loopback addresses
		TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
	}, nil
}

// get requests a path without following redirects. Token may be "". The caller closes the
// body.
func (t *Target) get(ctx context.Context, transport http.RoundTripper, path, token string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", t.URL, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return transport.RoundTrip(req)
}

// Cluster returns the entry of a kubeconfig for a path at the server, with what the credential
// needs of the entry.
func (t *Target) Cluster(path string, c *Credential) *clientcmdapi.Cluster {
	cluster := c.cluster.DeepCopy()
	cluster.Server, cluster.CertificateAuthorityData = t.URL+path, t.Authority
	return cluster
}

// ClientConfig returns the configuration of a client that uses the credential for a path at the
// server. Errors call the path by the given name.
func (t *Target) ClientConfig(name, path string, c *Credential) (*rest.Config, error) {
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = t.Cluster(path, c)
	k.AuthInfos[c.Name] = c.User
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: c.Name}
	return clientcmd.NewNonInteractiveClientConfig(*k, name, nil, nil).ClientConfig()
}

// ClusterList is the response at /clusters, without the states of the clusters.
type ClusterList struct {
	Clusters []struct {
		Name    string   `json:"name"`
		Aliases []string `json:"aliases"`
	} `json:"clusters"`
}

// Clusters requests the names of the server's clusters, including aliases, as the owner.
func (t *Target) Clusters(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	transport, err := t.transport()
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	resp, err := t.get(ctx, transport, "/clusters", t.Owner)
	if err != nil {
		return nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", t.URL, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("server at %s: list clusters: %s", t.URL, resp.Status)
	}
	var answer ClusterList
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxClusters)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("server at %s: list clusters: %w", t.URL, err)
	}
	names := make([]string, 0, len(answer.Clusters))
	for _, c := range answer.Clusters {
		names = append(append(names, c.Name), c.Aliases...)
	}
	return names, nil
}

// Reach returns an error if the server does not answer, or is not the one that the authority
// verifies. It sends no credentials.
func (t *Target) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	transport, err := t.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	resp, err := t.get(ctx, transport, "/livez", "")
	if err != nil {
		return fmt.Errorf("server at %s does not answer: %w; --offline prints the contexts without asking it", t.URL,
			err)
	}
	return resp.Body.Close()
}

// Status requests the version of the server's copy at a path, with the credentials of a
// client, and returns the HTTP status.
func (t *Target) Status(ctx context.Context, cfg *rest.Config, path string) (int, error) {
	cfg = rest.CopyConfig(cfg)
	// This wrapper is inside those of client-go, which run credential plugins.
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return statusOnly{next} })
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return 0, err
	}
	resp, err := t.get(ctx, transport, path+"/version", "")
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// statusOnly is a transport that limits the time of a request, and discards the body of the
// response. It does not keep connections.
type statusOnly struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (s statusOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), targetTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Close = true
	resp, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	resp.Body = http.NoBody
	return resp, nil
}
