// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kms

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/kms/vault"
)

// serve runs a vault until the test ends, and returns a client of it.
func serve(t *testing.T) (*vault.Vault, *Plugin) {
	t.Helper()
	v := vault.Start(t)
	p, err := Open(v.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	v.Rotate("second")
	other, err := p.Wrap(ctx, key)
	if err != nil || !bytes.Contains(other, []byte("second")) {
		t.Fatalf("%q, %v", other, err)
	}
	for _, wrapped := range [][]byte{old, other} {
		if got, err := p.Unwrap(ctx, wrapped); err != nil || !bytes.Equal(got, key) {
			t.Errorf("%q: %x, %v", wrapped, got, err)
		}
	}
	v.Destroy("first")
	if _, err := p.Unwrap(ctx, old); err == nil || !strings.Contains(err.Error(), `there is no key "first"`) {
		t.Errorf("with a key that was destroyed: %v", err)
	}
	if _, err := p.Unwrap(ctx, []byte("\x01\x02")); err == nil {
		t.Error("something else was decrypted")
	}
	v.Set("broken", nil)
	if err := p.Check(ctx); err == nil || !strings.Contains(err.Error(), "not healthy: broken") {
		t.Errorf("with a plugin that is not healthy: %v", err)
	}
}

// TestPlugin_hangs checks that a plugin that does not answer delays one call, and not each.
func TestPlugin_hangs(t *testing.T) {
	v, p := serve(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	v.Set("ok", hang)
	began := time.Now()
	for range 3 {
		if _, err := p.Wrap(t.Context(), []byte("key")); err == nil {
			t.Fatal("a plugin that hangs has answered")
		}
	}
	if took := time.Since(began); took < callTimeout || took > 2*callTimeout {
		t.Errorf("three calls took %v", took)
	}
	v.Set("ok", nil)
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
		{KeyID: "a", Ciphertext: make([]byte, maxCiphertext+1)}, {
			KeyID: "a", Ciphertext: []byte("b"), Annotations: map[string][]byte{"x": make([]byte, maxAnnotations)},
		},
	} {
		if bad.validate() == nil {
			t.Errorf("%d, %d and %d bytes were accepted", len(bad.KeyID), len(bad.Ciphertext), len(bad.Annotations))
		}
	}
}
