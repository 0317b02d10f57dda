// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accessKey is the HMAC key of access digests. It is random, so that a digest cannot be
// used to test guesses of a credential. Digests are compared within one process only.
var accessKey = func() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key
}()

// Access returns a digest of the fields of cfg that
// decide where requests are sent and with which credentials. Functions and the content
// of files are not part of it. With a token file, Config.BearerToken is not part of it
// either: client-go reads the file again every minute, so a new token needs no new
// connection. Digests of different processes are not comparable.
func Access(cfg *rest.Config) (string, error) {
	digested := struct {
		Host, APIPath, Username, Password, Token, TokenFile, Proxy string
		Impersonate                                                rest.ImpersonationConfig
		TLS                                                        rest.TLSClientConfig
		Exec                                                       *clientcmdapi.ExecConfig
		ExecConfig                                                 any // not in the JSON of Exec
		AuthProvider                                               *clientcmdapi.AuthProviderConfig
		DisableCompression                                         bool
		Timeout                                                    time.Duration
	}{
		Host: cfg.Host, APIPath: cfg.APIPath, Username: cfg.Username, Password: cfg.Password,
		Token: cfg.BearerToken, TokenFile: cfg.BearerTokenFile,
		Impersonate: cfg.Impersonate, TLS: cfg.TLSClientConfig, Exec: cfg.ExecProvider, AuthProvider: cfg.AuthProvider,
		DisableCompression: cfg.DisableCompression, Timeout: cfg.Timeout,
	}
	if cfg.BearerTokenFile != "" {
		digested.Token = ""
	}
	if cfg.ExecProvider != nil {
		digested.ExecConfig = cfg.ExecProvider.Config
	}
	if u := proxyOf(cfg); u != nil {
		digested.Proxy = u.String()
	}
	text, err := json.Marshal(digested)
	if err != nil {
		return "", errors.New("configuration has no digest") // the cause might quote a credential
	}
	mac := hmac.New(sha256.New, accessKey)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// Connection returns a digest of the settings that decide which server is trusted to be the
// cluster, and which user is impersonated. The digest is stored, and later processes compare it.
// It does not cover credentials: a person's credentials change every day, and a stored digest
// could be used to test guesses of them. It is "" if the configuration has functions, which
// cannot be compared, or its certificate authority cannot be read.
func Connection(cfg *rest.Config) string {
	if cfg.Dial != nil || cfg.Transport != nil || cfg.WrapTransport != nil {
		return ""
	}
	connection := struct {
		ServerName, Proxy string
		Insecure          bool
		CA                []byte
		As                rest.ImpersonationConfig
	}{ServerName: cfg.ServerName, Insecure: cfg.Insecure, CA: cfg.CAData, As: cfg.Impersonate}
	if u := proxyOf(cfg); u != nil {
		u.User = nil
		connection.Proxy = u.String()
	}
	var err error
	if len(cfg.CAData) == 0 && cfg.CAFile != "" {
		connection.CA, err = os.ReadFile(cfg.CAFile)
	}
	text, failed := json.Marshal(connection)
	if errors.Join(err, failed) != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Route returns a digest of the path to a server without the credentials: its address,
// its certificate authority and the proxy. Entries with equal digests are one cluster.
// The digest is empty if the configuration has functions, which cannot be compared.
func Route(cfg *rest.Config) string {
	if cfg == nil || cfg.Dial != nil || cfg.Transport != nil || cfg.WrapTransport != nil {
		return ""
	}
	route := &rest.Config{Host: identityOf(cfg).Endpoint, APIPath: cfg.APIPath, Proxy: cfg.Proxy}
	route.TLSClientConfig = rest.TLSClientConfig{
		Insecure: cfg.Insecure, ServerName: cfg.ServerName, CAFile: cfg.CAFile, CAData: cfg.CAData,
	}
	digest, err := Access(route)
	if err != nil {
		return ""
	}
	return digest
}

// proxyOf returns a copy of the address of the configured proxy, nil if there is none.
func proxyOf(cfg *rest.Config) *url.URL {
	if cfg.Proxy == nil {
		return nil
	}
	// A proxy from a kubeconfig is the same for every request.
	u, err := cfg.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "cluster"}})
	if err != nil || u == nil {
		return nil
	}
	proxy := *u
	return &proxy
}
