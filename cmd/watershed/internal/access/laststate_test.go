// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// lossy is an address that leads to a cluster, and drops requests if the test wants it.
type lossy struct {
	*httptest.Server
	// dropped reports which requests are not answered.
	dropped atomic.Pointer[func(*http.Request) bool]
}

func newLossy(t *testing.T, k *kubetest.Cluster) *lossy {
	t.Helper()
	target, err := url.Parse(k.URL())
	expect.NoError(t, err)
	l := &lossy{}
	l.drop(func(*http.Request) bool { return false })
	client := bareClient(t, k.Config())
	proxy := &httputil.ReverseProxy{
		Transport: client.Transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	l.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (*l.dropped.Load())(r) {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

// drop drops some requests from now on, and all connections.
func (l *lossy) drop(dropped func(*http.Request) bool) {
	l.dropped.Store(&dropped)
	if l.Server != nil {
		l.CloseClientConnections()
	}
}

// entry returns the cluster at the address, with the credentials of the administrator.
func (l *lossy) entry(k *kubetest.Cluster) fleet.Entry {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw})
	return fleet.Entry{
		Name: k.Name(),
		Config: &rest.Config{
			Host:            l.URL,
			BearerToken:     k.Config().BearerToken,
			QPS:             -1,
			TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		},
	}
}

// storedFiles opens a directory for the duration of a test.
func storedFiles(t *testing.T, path string) *disk.Directory {
	t.Helper()
	d, err := disk.Open(path, nil)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		expect.NoError(t, <-done)
		expect.NoError(t, d.Close())
	})
	return d
}

// TestLastState restarts the replica of a cluster that does not answer. Only the owner
// reads its last state, whatever answers reviews at its address.
func TestLastState(t *testing.T) {
	k := kubetest.Start(t, &kubetest.Options{
		Name:  "a",
		Users: []kubetest.User{{Name: "ann"}, {Name: "chief", Groups: []string{"system:masters"}}},
	})
	populate(t, k)
	w := &attackedReplica{a: k}
	w.grant(t, k, "ann", "", rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
	})
	others := map[string]string{
		"ann":             w.token(k, "ann"),
		"chief":           w.token(k, "chief"),
		"the replica":     k.Config().BearerToken,
		"a made-up token": "made-up-token",
	}
	at, path := newLossy(t, k), t.TempDir()
	everything := func(*http.Request) bool { return true }
	serve := func(t *testing.T) {
		opts := access.Options{
			Owner: ownerToken, Recheck: time.Second, Local: func(string) bool { return true },
			Crossing: access.Crossing{Home: "a", Users: []string{"ann", "chief"}},
		}
		entries := []fleet.Entry{at.entry(k)}
		w.guardedReplica = startGuardedOf(t, opts, []*kubetest.Cluster{k}, entries, false, storedFiles(t, path))
	}
	stored := func(t *testing.T) bool {
		got := w.get(t, ownerToken,
			"/clusters/a"+configmaps+"?at="+url.QueryEscape(time.Now().Format(time.RFC3339Nano)))
		return got.code == http.StatusOK
	}
	t.Run("first run", func(t *testing.T) {
		serve(t)
		expect.Soon(t, "a stored state", func() bool { return stored(t) })
		w.expectCode(t, http.StatusOK, others["ann"], "/clusters/a"+configmaps)
	})
	refuseOthers := func(t *testing.T) {
		for name, token := range others {
			for _, path := range []string{
				"/clusters/a" + configmaps, "/clusters/a" + configmaps + "/x",
				"/clusters/a" + configmaps + "?watch=true", "/clusters/a/api/v1", "/fleet" + configmaps,
			} {
				if got := w.get(t, token, path); got.code != http.StatusServiceUnavailable {
					t.Errorf("%s: %s: %d %.300s, want 503", name, path, got.code, got.body)
				}
			}
		}
		w.expectCode(t, http.StatusServiceUnavailable, ownerToken, "/clusters/a"+configmaps, "Impersonate-User", "ann")
	}
	t.Run("no answer", func(t *testing.T) {
		at.drop(everything)
		serve(t)
		expect.Soon(t, "the last state", func() bool {
			return w.get(t, ownerToken, "/clusters/a"+configmaps).code == http.StatusOK
		})
		for _, path := range []string{
			"/clusters/a" + configmaps, "/fleet" + configmaps, "/clusters/a" + configmaps + "/x",
		} {
			got := w.expectCode(t, http.StatusOK, ownerToken, path)
			age, err := time.ParseDuration(got.header.Get("Watershed-Age"))
			if err != nil || age <= 0 || !strings.Contains(got.header.Get("Warning"), "has been stale for") ||
				!strings.Contains(string(got.body), `"name":"x"`) {
				t.Errorf("%s: age %v, %v, %q: %.300s", path, age, err, got.header.Values("Warning"), got.body)
			}
		}
		w.expectCode(t, http.StatusOK, ownerToken, "/clusters/a"+configmaps+"?watch=true&timeoutSeconds=1")
		if got := w.expectCode(t, http.StatusOK, ownerToken, "/clusters/a/api/v1"); !strings.Contains(string(got.body),
			`"shortNames":["cm"]`) {
			t.Errorf("discovery: %.300s", got.body)
		}
		refuseOthers(t)
		at.drop(func(*http.Request) bool { return false })
		expect.Soon(t, "a current copy", func() bool {
			got := w.get(t, ownerToken, "/clusters/a"+configmaps)
			return got.code == http.StatusOK && got.header.Get("Warning") == ""
		})
		w.expectCode(t, http.StatusOK, others["ann"], "/clusters/a"+configmaps)
	})
	// A server that answers reviews may be another cluster, whose users are others.
	t.Run("only reviews", func(t *testing.T) {
		at.drop(func(r *http.Request) bool { return r.Method != http.MethodPost })
		serve(t)
		m, _ := w.fleet.Member("a")
		expect.Soon(t, "the last state", m.Discovered)
		w.expectCode(t, http.StatusServiceUnavailable, ownerToken, "/clusters/a"+configmaps)
		w.expectCode(t, http.StatusServiceUnavailable, ownerToken, "/fleet"+configmaps)
		delete(others, "a made-up token") // the cluster refuses it
		refuseOthers(t)
	})
	// Without files there is no last state to protect from another cluster.
	t.Run("no last state", func(t *testing.T) {
		path = t.TempDir()
		serve(t)
		got := w.get(t, ownerToken, "/clusters/a"+configmaps)
		if got.code == http.StatusOK || strings.Contains(string(got.body), "has not been identified") {
			t.Errorf("the owner receives %d %.300s", got.code, got.body)
		}
		refuseOthers(t)
		at.drop(func(*http.Request) bool { return false })
		expect.Soon(t, "the first state", func() bool {
			return w.get(t, ownerToken, "/clusters/a"+configmaps).code == http.StatusOK
		})
		w.expectCode(t, http.StatusOK, others["ann"], "/clusters/a"+configmaps)
	})
}
