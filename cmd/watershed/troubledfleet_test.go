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
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// troubledFleet is watershed serve with simulated clusters, some of them in trouble.
type troubledFleet struct {
	t *testing.T
	// metrics is the address of the metrics, url that of the replica.
	metrics, url string
	client       *http.Client
	token        string
	clusters     *simulated.Server
	// troubles has the alert that each cluster in trouble has to raise.
	troubles map[string]string
}

// disturbance changes the answers of a cluster. It reports whether it has answered.
type disturbance func(w http.ResponseWriter, r *http.Request) bool

// reviewing serves a cluster behind a proxy that answers access reviews, which simulated
// clusters cannot, and that has a trouble, which may be nil.
func reviewing(t *testing.T, cluster *rest.Config, has disturbance) *rest.Config {
	t.Helper()
	target, err := url.Parse(cluster.Host)
	expect.NoError(t, err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(cluster.CAData)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: trusted, ServerName: cluster.ServerName},
			ForceAttemptHTTP2: true,
		},
		FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case has != nil && has(w, r):
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			writeJSON(w, http.StatusCreated, &authorizationv1.SelfSubjectAccessReview{
				Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
			})
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
	config := rest.AnonymousClientConfig(cluster)
	config.Host, config.BearerToken, config.ServerName = s.URL, cluster.BearerToken, ""
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return config
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

// refuse answers requests for a resource with an error.
func refuse(resource string, err *apierrors.StatusError) disturbance {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/"+resource) {
			return false
		}
		status := err.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		writeJSON(w, int(status.Code), &status)
		return true
	}
}

// newTroubledFleet starts everything.
func newTroubledFleet(t *testing.T) *troubledFleet {
	t.Helper()
	small, err := simulated.New(&simulated.Options{Clusters: 7, Pods: 50, Types: 3, History: 200})
	expect.NoError(t, err)
	t.Cleanup(small.Close)
	large, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 900, Seed: 1})
	expect.NoError(t, err)
	t.Cleanup(large.Close)
	unauthorized, distrusted := reviewing(t, small.Cluster(3).Config(), nil),
		reviewing(t, small.Cluster(4).Config(), nil)
	unauthorized.BearerToken = "wrong"
	distrusted.CAData = small.Cluster(5).Config().CAData
	incomplete := &rest.Config{
		Host:            "https://127.0.0.1:1",
		TLSClientConfig: rest.TLSClientConfig{CertFile: "/nonexistent/cert", KeyFile: "/nonexistent/key"},
	}
	namespaces := schema.GroupResource{Resource: "namespaces"}
	configs := map[string]*rest.Config{
		"good": reviewing(t, small.Cluster(0).Config(), nil), "other": reviewing(t, small.Cluster(1).Config(), nil),
		"forbidding": reviewing(t, small.Cluster(2).Config(),
			refuse("namespaces", apierrors.NewForbidden(namespaces, "", nil))),
		"unauthorized": unauthorized, "distrusted": distrusted, "unreachable": {Host: "https://127.0.0.1:1"},
		"incomplete": incomplete,
		"failing": reviewing(t, small.Cluster(6).Config(),
			refuse("namespaces", apierrors.NewInternalError(io.ErrUnexpectedEOF))),
		"large": reviewing(t, large.Cluster(0).Config(), nil),
	}
	t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) }) // serve sets that of the process
	dir := t.TempDir()
	s := &state.Dir{Path: filepath.Join(dir, "state")}
	log, _ := startServe(t, s, "--kubeconfig", commandtest.WriteConfigs(t, filepath.Join(dir, "kubeconfig"), configs),
		"--metrics-listen", "127.0.0.1:0", "--max-cluster-objects", "600",
		"--verify-every", "2s", "--memory-limit", "16384", "--tracing-endpoint", "http://127.0.0.1:1",
		"--tracing-sampling-rate-per-million", "1000000", "--audit-log", filepath.Join(dir, "audit.log"),
		"--data-dir", filepath.Join(dir, "data"))
	w := &troubledFleet{t: t, clusters: small, troubles: map[string]string{
		"unauthorized": "WatershedCredentialsRefused", "distrusted": "WatershedCertificateRefused",
		"unreachable": "WatershedClusterUnreachable",
		"forbidding":  "WatershedResourceForbidden", "failing": "WatershedResourceStale",
		"large": "WatershedLimitExceeded", "incomplete": "WatershedAnotherCluster",
	}}
	w.metrics = metricsAddress(t, log)
	k := printedKubeconfig(t, s)
	w.token, err = s.Owner()
	expect.NoError(t, err)
	trusted := x509.NewCertPool()
	for _, c := range k.Clusters {
		trusted.AppendCertsFromPEM(c.CertificateAuthorityData)
		w.url = c.Server[:strings.Index(c.Server[len("https://"):], "/")+len("https://")]
	}
	w.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true},
	}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// metricsAddress returns the address of the metrics, which the log has.
func metricsAddress(t *testing.T, log *output) string {
	t.Helper()
	found := regexp.MustCompile(`msg=metrics url=http://([^/]+)/metrics`).FindStringSubmatch(log.String())
	if found == nil {
		t.Fatalf("the log has no address of the metrics: %s", log)
	}
	return found[1]
}

// get sends a request with the token of the owner, and returns the code and the body.
func (w *troubledFleet) get(ctx context.Context, path string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body := new(bytes.Buffer)
	_, err = body.ReadFrom(resp.Body)
	return resp.StatusCode, body.Bytes(), err
}

// load changes pods, and reads, lists and watches them, until stop is called.
func (w *troubledFleet) load(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.clusters.Churn(ctx, 50) })
	running.Go(func() {
		for ctx.Err() == nil {
			_, _, _ = w.get(ctx, "/clusters/good/api/v1/pods?watch=true&timeoutSeconds=2")
		}
	})
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			for _, path := range []string{
				"/clusters/good/api/v1/pods", "/clusters/other/api/v1/pods?limit=5",
				"/clusters/good/api/v1/namespaces/none/pods/none", "/fleet/api/v1/pods?limit=3",
				"/clusters/unreachable/api/v1/pods", "/clusters/good/api/v1/made-up-resource", "/clusters/good/apis",
				"/readyz",
			} {
				_, _, _ = w.get(ctx, path)
			}
			if n%10 == 9 { // the cluster forgets its history, and is listed again
				w.clusters.Cluster(1).Compact()
				w.clusters.Cluster(1).Cut()
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
