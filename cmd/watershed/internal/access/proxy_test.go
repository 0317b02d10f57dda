// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// startProxy starts a proxy that sends every request with one token, whatever token the request
// has, as kubectl proxy does with a client certificate. It returns how to reach the cluster there.
func startProxy(t *testing.T, k *kubetest.Cluster, token string) *rest.Config {
	t.Helper()
	target, err := url.Parse(k.URL())
	expect.NoError(t, err)
	client := bareClient(t, k.Config())
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{
		Transport: client.Transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
	})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	return &rest.Config{Host: proxy.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// TestAttacks_proxy: the address of a cluster leads to a proxy that adds the credentials of an
// operator. A made-up token must not become the operator, and a valid one not get the operator's
// rights by pass-through. At the API server itself both work.
func TestAttacks_proxy(t *testing.T) {
	k := kubetest.Start(t, &kubetest.Options{Name: "a", Users: []kubetest.User{{Name: "operator"}, {Name: "dan"}}})
	populate(t, k)
	w := &attackedReplica{a: k}
	everything := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"*"}}
	w.grant(t, k, "operator", "", everything, rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{"*"},
		Resources: []string{"*"},
	})
	operator, dan, admin := w.token(k, "operator"), w.token(k, "dan"), k.Config().BearerToken

	serve := func(t *testing.T, config *rest.Config) {
		entries := []fleet.Entry{{Name: "a", Config: config}}
		w.guardedReplica = startGuardedOf(t, access.Options{}, []*kubetest.Cluster{k}, entries, true)
	}
	const secrets = "/clusters/a/api/v1/namespaces/kube-system/secrets"
	t.Run("of a user who may not review tokens", func(t *testing.T) {
		serve(t, startProxy(t, k, operator))
		for _, token := range []string{"made-up", dan, operator} {
			w.expectCode(t, http.StatusServiceUnavailable, token, "/clusters/a"+configmaps)
			w.expectCreated(t, http.StatusServiceUnavailable, token)
		}
	})
	t.Run("of an administrator", func(t *testing.T) {
		serve(t, startProxy(t, k, admin))
		w.expectCode(t, http.StatusUnauthorized, "made-up", "/clusters/a"+configmaps)
		w.expectCreated(t, http.StatusUnauthorized, "made-up")
		w.expectCode(t, http.StatusForbidden, dan, "/clusters/a"+configmaps)
		w.expectCode(t, http.StatusServiceUnavailable, dan, secrets)
		w.expectCreated(t, http.StatusServiceUnavailable, dan)
		w.expectCode(t, http.StatusOK, operator, "/clusters/a"+configmaps)
	})
	t.Run("none", func(t *testing.T) {
		serve(t, k.UserConfig("operator"))
		w.expectCode(t, http.StatusUnauthorized, "made-up", "/clusters/a"+configmaps)
		w.expectCreated(t, http.StatusUnauthorized, "made-up")
		w.expectCode(t, http.StatusForbidden, dan, secrets)
		w.expectCreated(t, http.StatusForbidden, dan)
		w.expectCode(t, http.StatusOK, operator, "/clusters/a"+configmaps)
		w.expectCode(t, http.StatusOK, operator, secrets)
		w.expectCreated(t, http.StatusCreated, operator)
	})
}

// expectCreated checks the code of the response to a create of a config map.
func (w *attackedReplica) expectCreated(t *testing.T, want int, token string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/clusters/a"+configmaps,
		strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"made-"}}`))
	expect.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := w.Client().Do(r)
	expect.NoError(t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		t.Errorf("create: %d %.300s, want %d", resp.StatusCode, body, want)
	}
}
