// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdnet "net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

// startTLS serves requests with a certificate that ends at a time, and returns the
// configuration of a client.
func startTLS(t *testing.T, end time.Time, names []string, handler http.HandlerFunc) *rest.Config {
	t.Helper()
	a, err := authority.New("test")
	expect.NoError(t, err)
	der, key, err := a.ServingUntil(end, names, stdnet.IPv4(127, 0, 0, 1))
	expect.NoError(t, err)
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = nil
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: a.PEM()}}
}

// probeOf probes the server of a configuration.
func probeOf(t *testing.T, cfg *rest.Config) (Probe, error) {
	t.Helper()
	cluster, err := kube.FromConfig(cfg, &kube.Options{Name: "one"})
	expect.NoError(t, err)
	defer cluster.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	return NewProbe(ctx, cluster)
}

// TestTroubleOf_connections makes the errors with real servers and real certificates.
func TestTroubleOf_connections(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	later := time.Now().Add(time.Hour)
	silent := make(chan struct{})
	other := startTLS(t, later, []string{"one"}, answer)
	strange := startTLS(t, later, []string{"one"}, answer)
	strange.CAData = other.CAData
	named := startTLS(t, later, []string{"one"}, answer)
	named.ServerName = "two"
	stalled := startTLS(t, later, []string{"one"}, func(http.ResponseWriter, *http.Request) { <-silent })
	defer close(silent)
	for want, cfg := range map[Trouble]*rest.Config{
		Unreachable:        {Host: "https://127.0.0.1:1"},
		CertificateExpired: startTLS(t, time.Now().Add(-time.Minute), []string{"one"}, answer),
		UnknownAuthority:   strange,
		WrongHost:          named,
		TimedOut:           stalled,
	} {
		if _, err := probeOf(t, cfg); TroubleOf(err) != want {
			t.Errorf("%v is %s, want %s", err, TroubleOf(err), want)
		}
	}
}

func TestTroubleOf(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		want Trouble
	}{
		{nil, ""},
		{apierrors.NewUnauthorized("no"), Unauthorized},
		{fmt.Errorf("list: %w", apierrors.NewForbidden(pods, "", errors.New("no"))), Forbidden},
		{&reflector.Error{Reason: reflector.NotServed, Err: errors.New("none")}, NotServed},
		{&reflector.Error{Reason: reflector.Busy, Err: errors.New("later")}, Busy},
		{&reflector.Error{Reason: reflector.Refused, Err: errors.New("refused")}, Unreachable},
		{fmt.Errorf("%w: too many", quota.ErrLimit), LimitExceeded},
		{fmt.Errorf("%w for another resource", quota.ErrMemory), OutOfMemory},
		{fmt.Errorf("%w: other", upstream.ErrAnotherCluster), AnotherCluster},
		{fmt.Errorf("%w: %w", ErrUnlisted, errors.New("no file")), NoCredentials},
		{apierrors.NewInternalError(errors.New("broken")), ServerError},
		{&kube.GroupError{Err: apierrors.NewServiceUnavailable("x")}, DiscoveryFailed},
		{apierrors.NewTooManyRequests("x", 1), Busy},
		{apierrors.NewNotFound(pods, "x"), NotServed},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), TimedOut},
		{io.ErrUnexpectedEOF, Unreachable},
		{errors.New("something"), Failed},
	} {
		if got := TroubleOf(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

func TestProbe(t *testing.T) {
	cfg := startTLS(t, time.Now().Add(time.Hour), nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		if r.URL.Path != "/version" {
			t.Errorf("request for %s", r.URL.Path)
		}
		_, _ = w.Write([]byte(`{"gitVersion":"v1.99.1"}`))
	})
	p, err := probeOf(t, cfg)
	expect.NoError(t, err)
	if p.Version != "v1.99.1" || !p.IsNewer() || !p.IsSkewed() || p.Skew > -59*time.Minute ||
		p.Skew < -61*time.Minute || p.IsSlow() || p.At.IsZero() {
		t.Errorf("%+v", p)
	}
}

func TestProbe_verdicts(t *testing.T) {
	for version, newer := range map[string]bool{
		"": false, "nonsense": false, "v1": false, fmt.Sprintf("v1.%d.0", KubernetesMinor): false,
		fmt.Sprintf("v1.%d.0-rc.1+x", KubernetesMinor+1): true, "v1.9.0": false, "v2.0.0": true,
	} {
		if got := (Probe{Version: version}).IsNewer(); got != newer {
			t.Errorf("%q is newer: %v", version, got)
		}
	}
	began := time.Date(2026, 1, 1, 0, 0, 10, 900e6, time.UTC)
	ended := began.Add(200 * time.Millisecond)
	for second, want := range map[int]time.Duration{
		9: 0, 10: 0, 11: 0, 8: -time.Second, 41: 29 * time.Second, -50: -59 * time.Second,
	} {
		date := time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC)
		if got := skew(date, began, ended); got != want {
			t.Errorf("a date at second %d is %s ahead, want %s", second, got, want)
		}
	}
}

// TestKubernetesMinor fails when the types are updated and the constant is not.
func TestKubernetesMinor(t *testing.T) {
	text, err := os.ReadFile("../../../go.mod")
	expect.NoError(t, err)
	found := regexp.MustCompile(`k8s\.io/api v0\.(\d+)\.`).FindSubmatch(text)
	if found == nil || string(found[1]) != fmt.Sprint(KubernetesMinor) {
		t.Errorf("k8s.io/api is of %q, and KubernetesMinor is %d", found, KubernetesMinor)
	}
}

func TestInterruptions(t *testing.T) {
	var i Interruptions
	now := time.Now()
	observe := func(at time.Duration, recoveries ...uint64) {
		var all []ResourceStatus
		for _, n := range recoveries {
			all = append(all, ResourceStatus{Status: watershed.Status{Reflector: reflector.Status{Recoveries: n}}})
		}
		i.Observe(now.Add(at), all)
	}
	check := func(at time.Duration, want int) {
		t.Helper()
		if n, _ := i.Recent(now.Add(at)); n != want {
			t.Errorf("after %s: %d interruptions, want %d", at, n, want)
		}
	}
	check(0, 0)
	observe(0, 0, 0)
	check(0, 0)
	observe(time.Second, 1, 1) // all resources at once
	check(time.Second, 1)
	observe(2*time.Second, 1, 1)
	check(2*time.Second, 1)
	observe(time.Minute, 2, 3)
	check(time.Minute, 3)
	observe(2 * time.Minute) // the resources were replaced
	observe(3*time.Minute, 1)
	check(3*time.Minute, 4)
	check(10*time.Minute+2*time.Second, 3)
	check(time.Hour, 0)
	observe(time.Hour, 1_000_000)
	check(time.Hour, maxInterruptions)
}
