// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
)

// pipeListener is a network in memory, so that tests of timeouts take no time. Its
// connections have no buffers: a client that does not read blocks every write.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open []net.Conn
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, client)
		return client, nil
	case <-l.closed:
		return nil, errors.New("connect: connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut ends all connections.
func (l *pipeListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close()
	}
	l.open = nil
}

// apiServer is a cluster in memory with two config maps, a and b, and with secrets, which
// a replica does not mirror by default.
type apiServer struct {
	network *pipeListener
	// events are sent to its watch.
	events chan string
	// answer, unless it is nil, may respond in its place.
	answer atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

// answers sets a function that responds to requests. If it returns false, the server
// responds.
func (s *apiServer) answers(f func(w http.ResponseWriter, r *http.Request) bool) { s.answer.Store(&f) }

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" {
		http.Error(w, "Unauthorized", http.StatusUnauthorized) // the check whether it tells callers apart
		return
	}
	if answer := s.answer.Load(); answer != nil && (*answer)(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case r.URL.Path == "/api":
		_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case r.URL.Path == "/apis":
		_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case r.URL.Path == "/api/v1":
		const resource = `{"name":%q,"singularName":%q,"namespaced":true,"kind":%q,"verbs":["get","list","watch","create"],"categories":["all"]}`
		_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[%s,%s]}`,
			fmt.Sprintf(resource, "configmaps", "configmap", "ConfigMap"),
			fmt.Sprintf(resource, "secrets", "secret", "Secret"))
	case r.URL.Path == "/api/v1/configmaps" && query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Path == "/api/v1/configmaps" && query.Get("watch") != "":
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case event := <-s.events:
				_, _ = io.WriteString(w, event)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case r.URL.Path == "/api/v1/configmaps":
		_, _ = fmt.Fprintf(w,
			`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[%s,%s]}`,
			configMap("a", 5), configMap("b", 6))
	default:
		http.NotFound(w, r)
	}
}

// configMap returns a config map in JSON.
func configMap(name string, version int) string {
	return fmt.Sprintf(
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":%[1]q,"resourceVersion":"%d","labels":{"app":%[1]q}}}`, name, version,
	)
}

// add sends a new config map to the watch of a cluster.
func (s *apiServer) add(name string, version int) {
	s.events <- `{"type":"ADDED","object":` + configMap(name, version) + "}\n"
}

// pipedReplica is a replica of clusters in memory.
type pipedReplica struct {
	// options are the options of the replica, set before it starts.
	options Options
	t       testing.TB
	server  *Server
	fleet   *fleet.Fleet
	network *pipeListener
	origins map[string]*apiServer
	client  *http.Client
	// lists are passed to the fleet as its clusters.
	lists pipeDirectory
}

// pipeDirectory is a directory whose lists a test sends.
type pipeDirectory chan []fleet.Entry

// Follow implements [fleet.Directory].
func (d pipeDirectory) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	for {
		select {
		case entries := <-d:
			notify(entries)
		case <-ctx.Done():
			return nil
		}
	}
}

// entry returns the entry of a cluster with an origin.
func (w *pipedReplica) entry(name, origin string) fleet.Entry {
	config := &rest.Config{Host: "http://" + origin, Dial: w.origins[origin].network.dial}
	if w.options.PassThrough { // tokens of callers are not sent without encryption
		config.Host, config.TLSClientConfig = "https://"+origin, rest.TLSClientConfig{Insecure: true}
	}
	return fleet.Entry{Name: name, Access: origin, Config: config}
}

// admit makes the clusters of the fleet those with the given names.
func (w *pipedReplica) admit(names ...string) {
	var entries []fleet.Entry
	for _, name := range names {
		entries = append(entries, w.entry(name, name))
	}
	w.lists <- entries
}

// inMemory runs a test with a replica of clusters in memory, in a bubble. prepare, unless
// it is nil, is called before the replica starts.
func inMemory(
	t *testing.T, clusters []string, prepare func(w *pipedReplica), test func(t *testing.T, w *pipedReplica),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, stop := newPipedReplica(t, clusters, prepare)
		defer stop()
		test(t, w)
	})
}

// selfSigned returns a certificate that is valid for a client that verifies none.
func selfSigned(t testing.TB) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// newPipedReplica starts a replica of clusters in memory.
func newPipedReplica(t testing.TB, clusters []string, prepare func(w *pipedReplica)) (_ *pipedReplica, stop func()) {
	t.Helper()
	w := &pipedReplica{t: t, network: newPipeListener(), origins: map[string]*apiServer{}, lists: make(pipeDirectory)}
	var running sync.WaitGroup
	var servers []*http.Server
	run := func(h http.Handler, l net.Listener) {
		s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
		servers = append(servers, s)
		running.Go(func() { _ = s.Serve(l) })
	}
	for _, name := range clusters {
		o := &apiServer{network: newPipeListener(), events: make(chan string)}
		w.origins[name] = o
	}
	logger := slog.New(slog.DiscardHandler)
	if prepare != nil {
		prepare(w)
	}
	if w.options.Logger == nil {
		w.options.Logger = logger
	}
	for _, o := range w.origins {
		if w.options.PassThrough {
			run(o, tls.NewListener(o.network, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}))
		} else {
			run(o, o.network)
		}
	}
	var err error
	if w.fleet, err = fleet.New(w.lists, &fleet.Options{History: 1 << 20, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	if w.server, err = New(w.fleet, &w.options); err != nil {
		t.Fatal(err)
	}
	run(w.server, w.network)
	transport := &http.Transport{DialContext: w.network.dial}
	w.client = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _ = w.fleet.Run(ctx) })
	w.admit(clusters...)
	running.Go(func() { _ = w.server.Run(ctx) })
	return w, func() {
		cancel()
		transport.CloseIdleConnections()
		for _, s := range servers {
			_ = s.Close()
		}
		running.Wait()
	}
}

// get returns the code, the headers and the body of a response.
func (w *pipedReplica) get(path string, header ...string) (int, http.Header, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://replica"+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// open sends a request and returns the connection, from which nothing was read.
func (w *pipedReplica) open(path string) net.Conn {
	w.t.Helper()
	c, err := w.network.dial(w.t.Context(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: replica\r\n\r\n", path); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// readAnswer reads the rest of a response from a connection.
func readAnswer(c net.Conn, path string) (string, error) {
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodGet})
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	_, err = io.Copy(&text, resp.Body)
	return text.String(), err
}
