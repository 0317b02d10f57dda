// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kms

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/kms/pkg/service"
)

// vault is a key management service with keys in memory, behind Kubernetes' own server of
// the API.
type vault struct {
	mu      sync.Mutex
	keys    map[string]cipher.AEAD
	current string
	healthz string
	// hang is not nil while the plugin does not answer. Closing it ends that.
	hang chan struct{}
}

func (v *vault) rotate(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, _ := aes.NewCipher(key)
	v.keys[id], _ = cipher.NewGCM(block)
	v.current = id
}

func (v *vault) set(healthz string, hang chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.healthz, v.hang = healthz, hang
}

func (v *vault) Status(context.Context) (*service.StatusResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &service.StatusResponse{Version: "v2", Healthz: v.healthz, KeyID: v.current}, nil
}

func (v *vault) Encrypt(_ context.Context, uid string, data []byte) (*service.EncryptResponse, error) {
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
		Ciphertext: v.keys[v.current].Seal(nil, nonce, data, nil), KeyID: v.current, Annotations: map[string][]byte{"nonce.example.com": nonce},
	}, nil
}

func (v *vault) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key, ok := v.keys[r.KeyID]
	if !ok {
		return nil, fmt.Errorf("there is no key %q", r.KeyID)
	}
	return key.Open(nil, r.Annotations["nonce.example.com"], r.Ciphertext, nil)
}

// serve runs a vault at a socket until the test ends.
func serve(t *testing.T) (*vault, *Plugin) {
	t.Helper()
	v := &vault{keys: map[string]cipher.AEAD{}, healthz: "ok"}
	v.rotate("first")
	socket := filepath.Join(t.TempDir(), "kms.sock")
	server := service.NewGRPCService(socket, time.Second, v)
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	p, err := Open("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		server.Close()
		<-ended
	})
	return v, p
}

func TestPlugin_wraps(t *testing.T) {
	v, p := serve(t)
	ctx := t.Context()
	key := bytes.Repeat([]byte{7}, 32)
	old, err := p.Wrap(ctx, key)
	if err != nil || bytes.Contains(old, key) {
		t.Fatalf("%q, %v", old, err)
	}
	v.rotate("second")
	other, err := p.Wrap(ctx, key)
	if err != nil || !bytes.Contains(other, []byte("second")) {
		t.Fatalf("%q, %v", other, err)
	}
	for _, wrapped := range [][]byte{old, other} {
		if got, err := p.Unwrap(ctx, wrapped); err != nil || !bytes.Equal(got, key) {
			t.Errorf("%q: %x, %v", wrapped, got, err)
		}
	}
	v.mu.Lock()
	delete(v.keys, "first")
	v.mu.Unlock()
	if _, err := p.Unwrap(ctx, old); err == nil || !strings.Contains(err.Error(), `there is no key "first"`) {
		t.Errorf("with a key that was destroyed: %v", err)
	}
	if _, err := p.Unwrap(ctx, []byte("\x01\x02")); err == nil {
		t.Error("something else was decrypted")
	}
	v.set("broken", nil)
	if err := p.Check(ctx); err == nil || !strings.Contains(err.Error(), "not healthy: broken") {
		t.Errorf("with a plugin that is not healthy: %v", err)
	}
}

// TestPlugin_hangs checks that a plugin that does not answer delays one call, and not each.
func TestPlugin_hangs(t *testing.T) {
	v, p := serve(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	v.set("ok", hang)
	began := time.Now()
	for range 3 {
		if _, err := p.Wrap(t.Context(), []byte("key")); err == nil {
			t.Fatal("a plugin that hangs has answered")
		}
	}
	if took := time.Since(began); took < callTimeout || took > callTimeout+2*time.Second {
		t.Errorf("three calls took %v", took)
	}
	v.set("ok", nil)
	p.mu.Lock()
	p.resume = time.Time{}
	p.mu.Unlock()
	if _, err := p.Wrap(t.Context(), []byte("key")); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func TestPlugin_absent(t *testing.T) {
	p, err := Open("unix://" + filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Wrap(t.Context(), []byte("key")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("without a plugin: %v", err)
	}
	if _, err := Open("tcp://127.0.0.1:1"); err == nil {
		t.Error("an address that is not a socket was accepted")
	}
}

// TestEnvelope_limits checks the limits of the API.
func TestEnvelope_limits(t *testing.T) {
	good := envelope{KeyID: "a", Ciphertext: []byte("b")}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []envelope{
		{KeyID: "a"}, {Ciphertext: []byte("b")}, {KeyID: strings.Repeat("a", maxKeyID+1), Ciphertext: []byte("b")},
		{KeyID: "a", Ciphertext: make([]byte, maxCiphertext+1)}, {KeyID: "a", Ciphertext: []byte("b"), Annotations: map[string][]byte{"x": make([]byte, maxAnnotations)}},
	} {
		if bad.validate() == nil {
			t.Errorf("%d, %d and %d bytes were accepted", len(bad.KeyID), len(bad.Ciphertext), len(bad.Annotations))
		}
	}
}
