// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

// originHost is the address of the origin, which callers must not see.
const originHost = "https://origin.example:6443"

// origin is an API server with the faults that a real one cannot have in a test. It
// accepts the tokens in users.
type origin struct {
	mu      sync.Mutex
	users   map[string]authenticationv1.UserInfo
	pem     string                                        // the client CA
	review  func(http.ResponseWriter, *http.Request) bool // if set and true, it has responded
	config  func(http.ResponseWriter, *http.Request) bool
	last    authenticationv1.TokenReviewSpec
	reviews atomic.Int32
	reads   atomic.Int32
	running atomic.Int32
	most    atomic.Int32 // reviews at once
}

func (o *origin) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// ServeHTTP implements [http.Handler].
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.Path == authorityPath {
		o.reads.Add(1)
		o.mu.Lock()
		config, pem := o.config, o.pem
		o.mu.Unlock()
		if config == nil || !config(w, r) {
			respond(w, http.StatusOK, map[string]any{
				"kind": "ConfigMap", "apiVersion": "v1", "data": map[string]string{"client-ca-file": pem},
			})
		}
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" {
		http.Error(w, "unexpected request", http.StatusNotFound)
		return
	}
	o.reviews.Add(1)
	o.most.Store(max(o.most.Load(), o.running.Add(1)))
	defer o.running.Add(-1)
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	hook := o.review
	user, ok := o.users[review.Spec.Token]
	o.last = review.Spec
	o.mu.Unlock()
	if hook != nil && hook(w, r) {
		return
	}
	review.Status = authenticationv1.TokenReviewStatus{
		Authenticated: ok, User: user, Audiences: []string{"https://origin"},
	}
	if !ok { // as kube-apiserver does
		review.Status.Error = "invalid bearer token"
	}
	respond(w, http.StatusCreated, review)
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// RoundTrip calls the origin without a network, so that it can be used with synctest.
func (o *origin) RoundTrip(r *http.Request) (*http.Response, error) {
	done := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		done <- w.Result()
	}()
	select {
	case resp := <-done:
		if resp.Header.Get("Test-Fault") != "" {
			return nil, &refusedError{}
		}
		resp.Request = r
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

type refusedError struct{}

func (*refusedError) Error() string { return "dial tcp 192.0.2.7:6443: connect: connection refused" }

// hang does not respond until the request ends.
func hang(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

// status responds with a status of Kubernetes or plain text.
func status(code int, text string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
		return true
	}
}

// newTestCluster returns an authenticator at the origin and its log.
func newTestCluster(t testing.TB, o *origin, opts *Options) (*Cluster, *lockedBuffer) {
	t.Helper()
	c, err := kube.FromConfig(&rest.Config{
		Host: originHost, BearerToken: "the-replicas-own", Transport: o,
	}, &kube.Options{Name: "blue"})
	if err != nil {
		t.Fatal(err)
	}
	if opts == nil {
		opts = &Options{}
	}
	log := &lockedBuffer{}
	opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	a := New(c, opts)
	t.Cleanup(a.Close)
	return a, log
}

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// bearer returns a request with a token.
func bearer(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func from(address string, r *http.Request) *http.Request {
	r.RemoteAddr = address
	return r
}

// code returns the status code of an error, 200 for none and 0 for one that is not a status.
func code(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if s, ok := err.(apierrors.APIStatus); ok {
		return int(s.Status().Code)
	}
	return 0
}

// authenticated returns the code of one authentication.
func authenticated(a *Cluster, r *http.Request) int {
	_, err := a.Authenticate(context.Background(), r)
	return code(err)
}

// checkStatus checks an error that a caller sees: its code, Retry-After, and that it tells
// nothing about the origin or the token.
func checkStatus(t *testing.T, err error, want int, secrets ...string) {
	t.Helper()
	if code(err) != want {
		t.Errorf("error %v, want a status with code %d", err, want)
		return
	}
	s := err.(apierrors.APIStatus).Status()
	if seconds, retry := apierrors.SuggestsClientDelay(err); want != http.StatusUnauthorized &&
		(!retry || seconds != 1) {
		t.Errorf("%d: Retry-After %d, %t, want 1", want, seconds, retry)
	}
	text, _ := json.Marshal(s)
	for _, secret := range append(secrets, "origin", "192.0.2.7", "6443", "refused", "500") {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}
}
