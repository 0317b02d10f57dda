// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"

	"github.com/watershed-project/watershed/internal/kubetest/authority"
)

// keys are a cluster's secrets on disk: its own authority, the API server's certificate
// from it, and the key that signs service account tokens.
type keys struct {
	ca             []byte // PEM
	caFile         string
	servingCert    string
	servingKey     string
	serviceAccount string
}

func writeKeys(dir string) (*keys, error) {
	k := &keys{
		caFile:         dir + "/ca.crt",
		servingCert:    dir + "/apiserver.crt",
		servingKey:     dir + "/apiserver.key",
		serviceAccount: dir + "/service-account.key",
	}
	if err := k.write(); err != nil {
		return nil, fmt.Errorf("keys in %s: %w", dir, err)
	}
	return k, nil
}

func (k *keys) write() error {
	ca, err := authority.New("kubetest")
	if err != nil {
		return err
	}
	k.ca = ca.PEM()
	if err := os.WriteFile(k.caFile, k.ca, 0o644); err != nil {
		return err
	}
	serving, servingKey, err := ca.Serving(
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		net.IPv4(127, 0, 0, 1), net.IPv6loopback)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serving})
	if err := os.WriteFile(k.servingCert, cert, 0o644); err != nil {
		return err
	}
	if err := writeKey(k.servingKey, servingKey); err != nil {
		return err
	}

	saKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(k.serviceAccount, saKey)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
