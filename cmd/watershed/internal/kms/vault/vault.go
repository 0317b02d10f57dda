// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package vault is a key management service for tests: keys in memory, behind Kubernetes'
// own server of the KMS API, version 2.
package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/kms/pkg/service"
)

// Vault is a running service. All methods are safe for concurrent use.
type Vault struct {
	// Endpoint is the address of the service.
	Endpoint string

	mu      sync.Mutex
	keys    map[string]cipher.AEAD
	current string
	healthz string
	// hang is not nil while the service does not answer. Closing it ends that.
	hang chan struct{}
}

// Start runs a service with the key "first" until the test ends.
func Start(t *testing.T) *Vault {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kms.sock")
	v := &Vault{Endpoint: "unix://" + socket, keys: map[string]cipher.AEAD{}, healthz: "ok"}
	v.Rotate("first")
	server := service.NewGRPCService(socket, time.Second, v)
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return v
}

// Rotate makes a new key the current one. The service keeps the older keys.
func (v *Vault) Rotate(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, _ := aes.NewCipher(key)
	v.keys[id], _ = cipher.NewGCM(block)
	v.current = id
}

// Destroy removes a key: the service cannot decrypt with it any more.
func (v *Vault) Destroy(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.keys, id)
}

// Set sets what the service says about its health. While hang is not nil, Encrypt waits
// until it is closed.
func (v *Vault) Set(healthz string, hang chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.healthz, v.hang = healthz, hang
}

// Status implements service.Service.
func (v *Vault) Status(context.Context) (*service.StatusResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &service.StatusResponse{Version: "v2", Healthz: v.healthz, KeyID: v.current}, nil
}

// Encrypt implements service.Service.
func (v *Vault) Encrypt(_ context.Context, uid string, data []byte) (*service.EncryptResponse, error) {
	v.mu.Lock()
	hang := v.hang
	v.mu.Unlock()
	if hang != nil {
		// The end of the call's context does not end this: an answer sent at the
		// deadline could still reach the client.
		<-hang
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if uid == "" {
		return nil, errors.New("no uid")
	}
	nonce := make([]byte, 12)
	_, _ = rand.Read(nonce)
	return &service.EncryptResponse{
		Ciphertext: v.keys[v.current].Seal(nil, nonce, data, nil), KeyID: v.current,
		Annotations: map[string][]byte{"nonce.example.com": nonce},
	}, nil
}

// Decrypt implements service.Service.
func (v *Vault) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key, ok := v.keys[r.KeyID]
	if !ok {
		return nil, fmt.Errorf("there is no key %q", r.KeyID)
	}
	return key.Open(nil, r.Annotations["nonce.example.com"], r.Ciphertext, nil)
}
