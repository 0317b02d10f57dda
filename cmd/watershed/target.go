// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

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
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
)

const (
	// maxClusters limits, in bytes, how much of a server's list of clusters is read.
	maxClusters = 16 << 20
	// targetTimeout limits one request to a server. It does not include the time that a
	// credential plugin takes, which may wait for the user.
	targetTimeout = 10 * time.Second
)

// target is the server that a kubeconfig is for.
type target struct {
	// url is the address without a final slash.
	url string
	// authority has the certificates that verify the server, in PEM. Nil means those of
	// the system.
	authority []byte
	// private is true if the authority belongs to this server only.
	private bool
	// owner is the owner's token, "" if the server has no owner.
	owner string
	// home, kubeconfig and contexts are what the server has announced, see [server].
	home                 string
	kubeconfig, contexts []string
}

// localTarget returns the server that uses a state folder. Its authority is that of the
// folder unless a file is given.
func localTarget(s state, authorityFile string) (*target, error) {
	if err := s.find(); err != nil {
		return nil, err
	}
	running, err := s.server()
	if err != nil {
		return nil, err
	}
	t := &target{url: "https://" + running.Address, home: running.Home, kubeconfig: running.Kubeconfig, contexts: running.Contexts}
	if t.authority, err = readCertificates(authorityFile); err != nil {
		return nil, err
	}
	if authorityFile == "" && !running.OtherAuthority {
		t.authority, err = serving.ReadBundle(s.authorityFile())
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errNotServing
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
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		t.owner, err = s.owner()
	}
	return t, err
}

// remoteTarget returns the server at an address. Its authority is that of the system unless
// a file is given.
func remoteTarget(address, authorityFile string) (*target, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, errors.New("--server: not a valid URL; use one such as https://replica.example:7443")
	case u.Scheme != "https":
		return nil, fmt.Errorf("--server: scheme %q: credentials are only sent over https", u.Scheme)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("--server: a URL with a password, query or fragment; use one such as https://replica.example:7443")
	}
	authority, err := readCertificates(authorityFile)
	if err != nil {
		return nil, err
	}
	return &target{url: strings.TrimRight(u.String(), "/"), authority: authority}, nil
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

// owns reports whether an entry of a kubeconfig belongs to this server: it has an address
// below the server's, or a certificate of the server's own authority, which stays the same
// when the server listens elsewhere.
func (t *target) owns(cluster *clientcmdapi.Cluster) bool {
	if cluster == nil {
		return false
	}
	if t.private && shareCertificate(t.authority, cluster.CertificateAuthorityData) {
		return true
	}
	theirs, err := url.Parse(cluster.Server)
	ours, _ := url.Parse(t.url) // it was parsed before
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
func (t *target) transport() (*http.Transport, error) {
	trusted, err := x509.SystemCertPool()
	if t.authority != nil {
		trusted, err = x509.NewCertPool(), nil
		trusted.AppendCertsFromPEM(t.authority)
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
func (t *target) get(ctx context.Context, transport http.RoundTripper, path, token string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+path, nil)
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", t.url, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return transport.RoundTrip(req)
}

// clusterList is the response at /clusters, without the states of the clusters.
type clusterList struct {
	Clusters []struct {
		Name    string   `json:"name"`
		Aliases []string `json:"aliases"`
	} `json:"clusters"`
}

// clusters requests the names of the server's clusters, including aliases, as the owner.
func (t *target) clusters(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	transport, err := t.transport()
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	resp, err := t.get(ctx, transport, "/clusters", t.owner)
	if err != nil {
		return nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", t.url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("server at %s: list clusters: %s", t.url, resp.Status)
	}
	var answer clusterList
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxClusters)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("server at %s: list clusters: %w", t.url, err)
	}
	names := make([]string, 0, len(answer.Clusters))
	for _, c := range answer.Clusters {
		names = append(append(names, c.Name), c.Aliases...)
	}
	return names, nil
}

// reach returns an error if the server does not answer, or is not the one that the authority
// verifies. It sends no credentials.
func (t *target) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	transport, err := t.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	resp, err := t.get(ctx, transport, "/livez", "")
	if err != nil {
		return fmt.Errorf("server at %s does not answer: %w; --offline prints the contexts without asking it", t.url, err)
	}
	return resp.Body.Close()
}

// status requests the version of the server's copy at a path, with the credentials of a
// client, and returns the HTTP status.
func (t *target) status(ctx context.Context, cfg *rest.Config, path string) (int, error) {
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
