// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// keysRefresh is how old the keys may become while the issuer responds. A key that the
	// issuer withdraws is accepted so long.
	keysRefresh = time.Hour
	// keysGrace is how long the last keys are used if the issuer does not respond.
	keysGrace = 24 * time.Hour
	// keysPause is how often tokens with an unknown key can cause the keys to be read.
	keysPause = 10 * time.Second
	// issuerTimeout limits the read of the keys.
	issuerTimeout = 10 * time.Second
	// maxKeys is how many keys of an issuer are kept. One takes about 1 KB.
	maxKeys = 100
)

// issuer reads the keys of an OIDC issuer.
type issuer struct {
	url       string
	transport *http.Transport
	journal   *journal
}

func newIssuer(url, caFile string, j *journal) (*issuer, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: issuerTimeout,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     issuerTimeout,
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("CA of the issuer: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA of the issuer: %s contains no certificate", caFile)
		}
	}
	return &issuer{url: url, transport: transport, journal: j}, nil
}

// fetch reads the issuer's discovery document and its keys. It logs errors and returns a
// status.
func (i *issuer) fetch(ctx context.Context, _ []jose.JSONWebKey) ([]jose.JSONWebKey, error) {
	keys, err := i.read(ctx)
	if err != nil {
		i.journal.report("cannot read the keys of the issuer", err.Error())
		return nil, unavailable(issuerUnavailable)
	}
	return keys, nil
}

func (i *issuer) read(ctx context.Context) ([]jose.JSONWebKey, error) {
	var metadata struct {
		Issuer  string `json:"issuer"`
		KeysURL string `json:"jwks_uri"`
	}
	if err := i.document(ctx, strings.TrimSuffix(i.url, "/")+"/.well-known/openid-configuration",
		&metadata); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	if metadata.Issuer != i.url {
		return nil, fmt.Errorf("discovery: the issuer is %q, want %q", metadata.Issuer, i.url)
	}
	if !strings.HasPrefix(metadata.KeysURL, "https://") {
		return nil, fmt.Errorf("discovery: jwks_uri %q does not begin with https://", metadata.KeysURL)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := i.document(ctx, metadata.KeysURL, &set); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		// Keys of other kinds do not concern us, so those that cannot be read are skipped.
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && signs(key) && len(keys) < maxKeys {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("keys: none can be used")
	}
	return keys, nil
}

// document reads a document in JSON. Redirects are not followed.
func (i *issuer) document(ctx context.Context, url string, into any) error {
	code, body, err := get(ctx, i.transport, url)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("status %d", code)
	}
	return json.Unmarshal(body, into)
}

// signs reports whether a key is a public key for signatures.
func signs(key jose.JSONWebKey) bool {
	switch key.Key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return key.Valid() && (key.Use == "" || key.Use == "sig")
	}
	return false
}
