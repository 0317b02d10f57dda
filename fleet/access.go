// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
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

// Access returns the usual value of [Entry.Access]: a digest of the fields of cfg that
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
