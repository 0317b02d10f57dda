// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/replica"
)

// ownerToken is the token of the owner in tests that have one.
const ownerToken = "the-owner-of-this-test"

// guardedReplica is a replica of real clusters, with access control.
type guardedReplica struct {
	*httptest.Server
	directory *directory.Static
	fleet     *fleet.Fleet
	control   *access.Control
	clusters  map[string]*kubetest.Cluster
	clients   map[string]*http.Client // of the clusters
	// disabled switches access control off, to measure what it costs.
	disabled atomic.Bool
}

// startGuarded serves clusters, and returns when they have synced.
func startGuarded(t *testing.T, opts access.Options, clusters ...*kubetest.Cluster) *guardedReplica {
	t.Helper()
	var entries []fleet.Entry
	for _, k := range clusters {
		entries = append(entries, fleet.Entry{Name: k.Name(), Config: k.Config()})
	}
	return startGuardedOf(t, opts, clusters, entries, false)
}

// startGuardedOf is startGuarded with other ways to the clusters, with pass-through if it is wanted, and with
// files if there are some: then the last state can be read.
func startGuardedOf(
	t *testing.T, opts access.Options, clusters []*kubetest.Cluster, entries []fleet.Entry, passThrough bool,
	files ...*disk.Directory,
) *guardedReplica {
	t.Helper()
	w := &guardedReplica{clusters: map[string]*kubetest.Cluster{}, clients: map[string]*http.Client{}}
	for _, k := range clusters {
		w.clusters[k.Name()] = k
		w.clients[k.Name()] = bareClient(t, k.Config())
	}
	d, err := directory.NewStatic(entries...)
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.directory = d
	options := &fleet.Options{
		Resources: []string{"*", "events", "leases.coordination.k8s.io"}, History: 16 << 20, Logger: logger,
	}
	for _, stored := range files {
		options.Disk, options.LastState = stored, true
	}
	w.fleet, err = fleet.New(d, options)
	if err != nil {
		t.Fatal(err)
	}
	opts.Logger = logger
	if w.control, err = access.New(w.fleet, opts); err != nil {
		t.Fatal(err)
	}
	handler, err := replica.New(w.fleet, &replica.Options{
		Logger:           logger,
		Admit:            w.admit,
		Authorize:        w.authorize,
		ProgramResources: w.control.Own(),
		PassThrough:      passThrough,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Server = httptest.NewUnstartedServer(w.control.Handler(handler))
	w.EnableHTTP2 = true
	w.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	w.StartTLS()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{w.fleet.Run, handler.Run, w.control.Run} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
		cancel()
		running.Wait()
		w.control.Close()
	})
	wait, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := w.fleet.WaitForSync(wait); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *guardedReplica) admit(r *http.Request, q *replica.Request) (func(), error) {
	if w.disabled.Load() {
		return func() {}, nil
	}
	return w.control.Admit(r, q)
}

func (w *guardedReplica) authorize(r *http.Request, q *replica.Request) (*replica.Access, error) {
	if w.disabled.Load() {
		return nil, nil
	}
	return w.control.Authorize(r, q)
}

// quick returns the configuration of a cluster without a limit of requests.
func quick(k *kubetest.Cluster) *rest.Config {
	cfg := k.Config()
	cfg.QPS = -1
	return cfg
}

// authority returns the certificate of the replica.
func (w *guardedReplica) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
}

// oldClient returns a client of the replica that uses HTTP/1.
func (w *guardedReplica) oldClient(t *testing.T) *http.Client {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AddCert(w.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// bareClient returns a client of a cluster that adds no credentials.
func bareClient(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// answer is a response.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// ask sends a request, and reads the response unless it is a watch.
func ask(ctx context.Context, client *http.Client, url, token string, header http.Header) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{code: resp.StatusCode, header: resp.Header}
	if resp.StatusCode == http.StatusOK && isWatch(r) {
		return a, nil
	}
	a.body, err = io.ReadAll(resp.Body)
	return a, err
}

func isWatch(r *http.Request) bool {
	values, ok := r.URL.Query()["watch"]
	return ok && values[0] != "0" && values[0] != "false"
}

func newTokenRequest() *authenticationv1.TokenRequest {
	hour := int64(3600)
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}
}
