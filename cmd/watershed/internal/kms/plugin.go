// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package kms encrypts data keys with a plugin that implements Kubernetes' KMS API, version
// 2: the same plugin with which kube-apiserver encrypts secrets in etcd.
package kms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/util"
)

const (
	// callTimeout limits a call of the plugin. It is kube-apiserver's default.
	callTimeout = 3 * time.Second
	// pause is how long calls fail at once after one has timed out: the writer of files
	// waits for each, and there may be one for every cluster.
	pause = 10 * time.Second
	// The API's limits, in bytes.
	maxCiphertext, maxKeyID, maxAnnotations = 1 << 10, 1 << 10, 32 << 10
)

// Plugin is a client of a plugin. It implements disk.Keys.
type Plugin struct {
	endpoint string
	conn     *grpc.ClientConn
	client   kmsapi.KeyManagementServiceClient

	mu sync.Mutex
	// resume is when calls are made again after a timeout.
	resume time.Time
}

// Open returns a client of the plugin at an endpoint, such as unix:///run/kms.sock. It does
// not connect.
func Open(endpoint string) (*Plugin, error) {
	address, err := util.ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	// The plugin is on the same machine, and the file of the socket decides about access.
	conn, err := grpc.NewClient("unix:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("kms plugin %s: %w", endpoint, err)
	}
	return &Plugin{endpoint: endpoint, conn: conn, client: kmsapi.NewKeyManagementServiceClient(conn)}, nil
}

// Close closes the connection.
func (p *Plugin) Close() error { return p.conn.Close() }

// Check returns an error if the plugin does not answer, or is not healthy.
func (p *Plugin) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := p.client.Status(ctx, &kmsapi.StatusRequest{}, grpc.WaitForReady(true))
	switch {
	case err != nil:
		return p.failed("status", err)
	case s.Version != "v2" && s.Version != "v2beta1":
		return p.failed("status", fmt.Errorf("version %q of the API is not supported: use v2", s.Version))
	case s.Healthz != "ok":
		return p.failed("status", fmt.Errorf("the plugin is not healthy: %s", s.Healthz))
	case s.KeyId == "":
		return p.failed("status", errors.New("the plugin has no key"))
	}
	return nil
}

// call makes a call, unless one has timed out shortly before.
func (p *Plugin) call(name string, call func() error) error {
	p.mu.Lock()
	wait := time.Until(p.resume)
	p.mu.Unlock()
	if wait > 0 {
		return p.failed(name, fmt.Errorf("the plugin has timed out, the next try is in %v", wait.Round(time.Second)))
	}
	err := call()
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.resume = time.Now().Add(pause)
	case err == nil:
		return nil
	}
	return p.failed(name, err)
}

func (p *Plugin) failed(call string, err error) error {
	return fmt.Errorf("kms plugin %s: %s: %w", p.endpoint, call, err)
}

// envelope is an encrypted data key in files, with what the plugin needs to decrypt it.
type envelope struct {
	KeyID       string            `json:"keyID"`
	Ciphertext  []byte            `json:"ciphertext"`
	Annotations map[string][]byte `json:"annotations,omitempty"`
}

// Wrap implements disk.Keys.
func (p *Plugin) Wrap(ctx context.Context, dataKey []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var r *kmsapi.EncryptResponse
	err := p.call("encrypt", func() (err error) {
		r, err = p.client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: dataKey, Uid: uuid.NewString()})
		return err
	})
	if err != nil {
		return nil, err
	}
	e := envelope{r.KeyId, r.Ciphertext, r.Annotations}
	if err := e.validate(); err != nil {
		return nil, p.failed("encrypt", err)
	}
	return json.Marshal(e)
}

// validate checks the limits of the API.
func (e *envelope) validate() error {
	annotations := 0
	for name, value := range e.Annotations {
		annotations += len(name) + len(value)
	}
	switch {
	case len(e.Ciphertext) == 0 || len(e.Ciphertext) > maxCiphertext:
		return fmt.Errorf("the encrypted key has %d bytes", len(e.Ciphertext))
	case e.KeyID == "" || len(e.KeyID) > maxKeyID:
		return fmt.Errorf("the ID of the key has %d bytes", len(e.KeyID))
	case annotations > maxAnnotations:
		return fmt.Errorf("the annotations have %d bytes", annotations)
	}
	return nil
}

// Unwrap implements disk.Keys.
func (p *Plugin) Unwrap(ctx context.Context, wrapped []byte) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(wrapped, &e); err != nil {
		return nil, fmt.Errorf("the data key was not encrypted by a kms plugin: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var r *kmsapi.DecryptResponse
	err := p.call("decrypt", func() (err error) {
		r, err = p.client.Decrypt(ctx, &kmsapi.DecryptRequest{
			Ciphertext: e.Ciphertext, KeyId: e.KeyID, Annotations: e.Annotations, Uid: uuid.NewString(),
		})
		return err
	})
	return r.GetPlaintext(), err
}
