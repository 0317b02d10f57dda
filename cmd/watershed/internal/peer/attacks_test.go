// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package peer

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// stranger is a client of the port for replicas, with a certificate or without.
func stranger(t *testing.T, certificates ...tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends a request to a replica, and returns the code of the response, 0 if there is none.
func (m *member) send(t *testing.T, from *http.Client, method, path string, body []byte, header ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+m.Address+path, bytes.NewReader(body))
	expect.NoError(t, err)
	req.Header.Set(formatHeader, strconv.Itoa(Format))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := from.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestAttack_strangers checks that a client which is not a replica in the list of the group ends in the
// handshake.
func TestAttack_strangers(t *testing.T) {
	var g replicaList
	a, b := g.join(t, "a", 0), g.join(t, "b", 1)
	expect.Soon(t, "both are connected", func() bool { return a.connected(1) && b.connected(1) })
	other, err := NewKey()
	expect.NoError(t, err)
	named, err := other.Certificate("b")
	expect.NoError(t, err)
	renamed, err := b.opts.Key.Certificate("c")
	expect.NoError(t, err)
	for name, c := range map[string][]tls.Certificate{
		"without a certificate":                       nil,
		"with the name of a replica and another key":  {named},
		"with the key of a replica and another name":  {renamed},
		"with the certificate of the attacked itself": {a.own},
	} {
		for _, path := range []string{beatPath, notePath, reportPath, versionsPath, "/"} {
			if code := a.send(t, stranger(t, c...), http.MethodPost, path, []byte("note")); code != 0 {
				t.Errorf("a client %s gets %d for %s, and no connection was expected", name, code, path)
			}
		}
	}
	if a.has("note") {
		t.Error("a note of a stranger was recorded")
	}
}

// TestAttack_replica checks what a replica in the list can do with its certificate.
func TestAttack_replica(t *testing.T) {
	var g replicaList
	a, b := g.join(t, "a", 0), g.join(t, "b", 1)
	expect.Soon(t, "both are connected", func() bool { return a.connected(1) && b.connected(1) })
	as := stranger(t, b.own)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/clusters", http.StatusNotFound},
		{http.MethodGet, "/clusters/one/api/v1/pods", http.StatusNotFound},
		{http.MethodPost, "/clusters/one/api/v1/namespaces/default/pods", http.StatusNotFound},
		{http.MethodGet, "/metrics", http.StatusNotFound},
		{http.MethodGet, "/v1/", http.StatusNotFound},
		{http.MethodConnect, "/", http.StatusNotFound},
		{http.MethodGet, notePath, http.StatusMethodNotAllowed},
		{http.MethodGet, reportPath, http.StatusOK},
		{http.MethodGet, versionsPath, http.StatusMethodNotAllowed},
		{http.MethodPost, versionsPath, http.StatusOK},
		{http.MethodPost, beatPath, http.StatusNoContent},
	} {
		if code := a.send(t, as, c.method, c.path, nil, "Authorization", "Bearer token"); code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, code, c.want)
		}
	}
	code := a.send(t, as, http.MethodPost, notePath, []byte("new"), formatHeader, strconv.Itoa(Format+1))
	expect.Equal(t, code, http.StatusBadRequest)
	expect.Equal(t, a.send(t, as, http.MethodPost, versionsPath, []byte("busy")), http.StatusTooManyRequests)
	question := []byte(strings.Repeat("x", maxQuestion+1))
	expect.Equal(t, a.send(t, as, http.MethodPost, versionsPath, question), http.StatusRequestEntityTooLarge)
	large := []byte(strings.Repeat("x", a.opts.MaxNote+1))
	expect.Equal(t, a.send(t, as, http.MethodPost, notePath, large), http.StatusRequestEntityTooLarge)
	expect.Equal(t, a.send(t, as, http.MethodPost, notePath, large[1:]), http.StatusNoContent)
	expect.Equal(t, a.has("new"), false)

	// An open connection ends with the Lease.
	g.remove("b")
	expect.Equal(t, a.send(t, as, http.MethodPost, notePath, []byte("late")), http.StatusForbidden)
	expect.Equal(t, a.send(t, as, http.MethodPost, notePath, []byte("late")), 0)
	expect.Equal(t, a.has("late"), false)
}

// TestAttack_flood sends more notes at once than a replica may: the others are refused.
func TestAttack_flood(t *testing.T) {
	var g replicaList
	a, b := g.join(t, "a", 0), g.join(t, "b", 1)
	expect.Soon(t, "both are connected", func() bool { return a.connected(1) && b.connected(1) })
	answer := make(chan struct{})
	var recording sync.WaitGroup
	recording.Add(maxNotes)
	a.mu.Lock()
	a.receive = func([]byte) error {
		recording.Done()
		<-answer
		return nil
	}
	a.mu.Unlock()
	as := stranger(t, b.own)
	var running sync.WaitGroup
	codes := make(chan int, maxNotes)
	for range maxNotes {
		running.Go(func() {
			code := http.StatusTooManyRequests
			for code == http.StatusTooManyRequests { // a beat of the replica had the place
				code = a.send(t, as, http.MethodPost, notePath, []byte("flood"))
			}
			codes <- code
		})
	}
	recording.Wait()
	for range maxNotes {
		expect.Equal(t, a.send(t, as, http.MethodPost, notePath, []byte("more")), http.StatusTooManyRequests)
	}
	close(answer)
	running.Wait()
	for range maxNotes {
		expect.Equal(t, <-codes, http.StatusNoContent)
	}
	expect.Equal(t, a.has("more"), false)
}

// TestAttack_foreignAddress has a Lease with the address of a server that does not have the key: it
// learns neither notes nor the certificate of the replica.
func TestAttack_foreignAddress(t *testing.T) {
	var g replicaList
	a, b := g.join(t, "a", 0), g.join(t, "b", 1)
	expect.Soon(t, "both are connected", func() bool { return a.connected(1) && b.connected(1) })
	other, err := NewKey()
	expect.NoError(t, err)
	own, err := other.Certificate("b")
	expect.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	var mu sync.Mutex
	var clients, requests, certificates int
	count := func(n *int) {
		mu.Lock()
		defer mu.Unlock()
		*n++
	}
	server := &http.Server{
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { count(&clients); return nil, nil },
			VerifyConnection: func(state tls.ConnectionState) error {
				if len(state.PeerCertificates) > 0 {
					count(&certificates)
				}
				return nil
			},
		},
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { count(&requests) }),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(l, "", "") }()
	defer func() { _ = server.Close(); <-ended }()

	g.change(func(all []Peer) []Peer {
		for i := range all {
			if all[i].Holder == "b" {
				all[i].Address = l.Addr().String()
			}
		}
		return all
	})
	expect.Soon(t, "the stranger is asked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return clients > 1
	})
	if a.Send(t.Context(), []byte("secret")) || a.Stats().Unreachable != 1 {
		t.Error("the stranger counts as the replica")
	}
	mu.Lock()
	defer mu.Unlock()
	if requests > 0 || certificates > 0 {
		t.Errorf("the stranger has got %d requests and %d certificates", requests, certificates)
	}
}
