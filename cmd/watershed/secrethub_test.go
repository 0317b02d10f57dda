// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
)

// secretHub is a hub that serves the kubeconfigs of Cluster API: lists and watches of Secrets, of
// which it has no others. It keeps all changes.
type secretHub struct {
	*httptest.Server
	// kubeconfig has the contexts hub and refused, whose token is not accepted.
	kubeconfig string

	mu      sync.Mutex
	down    bool
	version int
	secrets map[string]map[string]any
	events  []secretEvent
	changed chan struct{} // closed and replaced with every change
}

type secretEvent struct {
	version int
	line    []byte
}

// startSecretHub starts a hub that ends with the test.
func startSecretHub(t *testing.T) *secretHub {
	t.Helper()
	h := &secretHub{
		secrets:    map[string]map[string]any{},
		changed:    make(chan struct{}),
		kubeconfig: filepath.Join(t.TempDir(), "hub"),
	}
	h.Server = httptest.NewUnstartedServer(h)
	h.EnableHTTP2 = true
	h.StartTLS()
	t.Cleanup(h.Close)
	t.Cleanup(h.CloseClientConnections)
	k := clientcmdapi.NewConfig()
	k.Clusters["hub"] = &clientcmdapi.Cluster{
		Server:                   h.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
	}
	for name, token := range map[string]string{"hub": "accepted", refusedToken: refusedToken} {
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: name}
	}
	expect.NoError(t, clientcmd.WriteToFile(*k, h.kubeconfig))
	return h
}

// stop makes the hub unreachable, or reachable again.
func (h *secretHub) stop(down bool) {
	h.mu.Lock()
	h.down = down
	h.mu.Unlock()
	if down {
		h.CloseClientConnections()
	}
}

// set creates or changes the kubeconfig of a cluster in the namespace default, or deletes it if
// the kubeconfig is nil.
func (h *secretHub) set(cluster string, kubeconfig []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	typ := "MODIFIED"
	if h.secrets[cluster] == nil {
		typ = "ADDED"
	}
	if kubeconfig == nil {
		typ = "DELETED"
	}
	secret := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret", "data": map[string]string{
			"value": base64.StdEncoding.EncodeToString(kubeconfig),
		},
		"metadata": map[string]any{
			"namespace": "default", "name": cluster + "-kubeconfig", "uid": cluster,
			"resourceVersion": strconv.Itoa(h.version),
			"labels":          map[string]string{"cluster.x-k8s.io/cluster-name": cluster},
		},
	}
	h.secrets[cluster] = secret
	if kubeconfig == nil {
		delete(h.secrets, cluster)
	}
	line, err := json.Marshal(map[string]any{"type": typ, "object": secret})
	if err != nil {
		panic(err)
	}
	h.events = append(h.events, secretEvent{h.version, append(line, '\n')})
	close(h.changed)
	h.changed = make(chan struct{})
}

// ServeHTTP implements [http.Handler].
func (h *secretHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	down := h.down
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case down:
		panic(http.ErrAbortHandler)
	case r.Header.Get("Authorization") != "Bearer accepted":
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path != "/api/v1/secrets":
		w.WriteHeader(http.StatusNotFound)
	case query.Get("sendInitialEvents") == "true":
		w.WriteHeader(http.StatusUnprocessableEntity)
	case query.Get("watch") != "":
		h.watch(w, r)
	default:
		h.list(w)
	}
}

func (h *secretHub) list(w http.ResponseWriter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	items := []any{}
	for _, s := range h.secrets {
		items = append(items, s)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"apiVersion": "v1", "kind": "SecretList",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(h.version)}, "items": items,
	})
}

// watch sends the changes after a version until the client goes.
func (h *secretHub) watch(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	for {
		h.mu.Lock()
		events, changed := h.events, h.changed
		h.mu.Unlock()
		for _, e := range events {
			if e.version > after {
				after = e.version
				_, _ = w.Write(e.line) // the client may be gone
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
