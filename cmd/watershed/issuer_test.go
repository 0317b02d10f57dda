// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// issuer is an issuer of OpenID Connect.
type issuer struct {
	*httptest.Server
	key    *rsa.PrivateKey
	caFile string
}

// startIssuer starts an issuer that ends with the test, and writes its certificate to a
// folder.
func startIssuer(t *testing.T, dir string) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	expect.NoError(t, err)
	i := &issuer{key: key, caFile: filepath.Join(dir, "issuer.crt")}
	i.Server = httptest.NewTLSServer(i)
	t.Cleanup(i.Close)
	expect.NoError(t, os.WriteFile(i.caFile,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}), 0o600))
	return i
}

// ServeHTTP implements [http.Handler].
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var response any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		response = map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
	case "/keys":
		response = jose.JSONWebKeySet{
			Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "key", Algorithm: "RS256", Use: "sig"}},
		}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response)
}

// flags returns the flags of a server that accepts the issuer.
func (i *issuer) flags() []string {
	return []string{
		"--oidc-issuer-url", i.URL, "--oidc-client-id", "watershed", "--oidc-username-prefix", "oidc:",
		"--oidc-ca-file", i.caFile,
	}
}

// sign returns a token with these claims.
func (i *issuer) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: i.key},
		new(jose.SignerOptions).WithHeader("kid", "key"))
	expect.NoError(t, err)
	claims["iss"], claims["aud"], claims["exp"] = i.URL, "watershed", time.Now().Add(time.Hour).Unix()
	text, err := json.Marshal(claims)
	expect.NoError(t, err)
	signed, err := signer.Sign(text)
	expect.NoError(t, err)
	token, err := signed.CompactSerialize()
	expect.NoError(t, err)
	return token
}

// addUser adds a context of the fleet to the kubeconfig, for a user of the issuer that may
// read pods of the cluster.
func (i *issuer) addUser(
	ctx context.Context, t *testing.T, k *kubetest.Cluster, config *clientcmdapi.Config, fleetURL string,
) userContext {
	t.Helper()
	c := userContext{"oidc", "oidc:ann"}
	expect.NoError(t, k.Grant(ctx, c.user, "default", podReader))
	token := i.sign(t, map[string]any{"sub": "ann"})
	var ca []byte
	for _, cluster := range config.Clusters {
		ca = cluster.CertificateAuthorityData
	}
	config.Clusters["fleet"] = &clientcmdapi.Cluster{Server: fleetURL, CertificateAuthorityData: ca}
	config.AuthInfos[c.name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[c.name] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: c.name, Namespace: "default"}
	return c
}
