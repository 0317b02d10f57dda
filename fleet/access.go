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
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accessKey makes digests of credentials useless to who would guess them. They are
// compared within one process only.
var accessKey = func() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key
}()

// accessOf is a digest of what of a configuration decides where requests go and who
// sends them. A token that comes from a file is not part of it: client-go reads the
// file again every minute, so that a new token needs no new connection.
func accessOf(cfg *rest.Config) (string, error) {
	what := struct {
		Host, APIPath, Username, Password, Token, TokenFile, Proxy string
		Impersonate                                                rest.ImpersonationConfig
		TLS                                                        rest.TLSClientConfig
		Exec                                                       *clientcmdapi.ExecConfig
		ExecConfig                                                 any // which Exec does not show
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
		what.Token = ""
	}
	if cfg.ExecProvider != nil {
		what.ExecConfig = cfg.ExecProvider.Config
	}
	if cfg.Proxy != nil {
		// One from a kubeconfig is the same for all requests.
		if u, err := cfg.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "cluster"}}); err == nil && u != nil {
			what.Proxy = u.String()
		}
	}
	text, err := json.Marshal(what)
	if err != nil {
		return "", errors.New("configuration has no digest") // the error might quote it
	}
	mac := hmac.New(sha256.New, accessKey)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// entryOf is the entry of a cluster that cfg leads to or, if err is not nil, of one
// that cannot be reached because of it. A configuration that cannot work is an
// error here and not with the first request, so that a cluster that was reached
// before keeps the one it had.
func entryOf(name string, cfg *rest.Config, err error) Entry {
	if err == nil {
		err = checkConfig(cfg)
	}
	var access string
	if err == nil {
		access, err = accessOf(cfg)
	}
	if err != nil {
		return Entry{Name: name, Err: err}
	}
	return Entry{Name: name, Config: cfg, Access: access}
}

// checkConfig finds addresses and certificates that make no sense.
func checkConfig(cfg *rest.Config) error {
	if _, _, err := rest.DefaultServerUrlFor(cfg); err != nil {
		return errors.New("address of the server makes no sense") // it may have a password in it
	}
	// Without the credentials, for which nothing is to be run.
	if _, err := rest.TLSConfigFor(&rest.Config{Host: cfg.Host, TLSClientConfig: cfg.TLSClientConfig}); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return nil
}

// copyConfig shares nothing that somebody might change. [rest.CopyConfig] alone
// shares the plugin, and writes to it.
func copyConfig(cfg *rest.Config) *rest.Config {
	if cfg == nil {
		return nil
	}
	own := *cfg
	own.ExecProvider = cfg.ExecProvider.DeepCopy()
	own.AuthProvider = cfg.AuthProvider.DeepCopy()
	return rest.CopyConfig(&own)
}
