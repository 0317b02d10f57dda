// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// authorityLife is how long clients can trust the authority before they need another
	// kubeconfig. authorityRest is how much of it must be left at a start.
	authorityLife = 10 * 365 * 24 * time.Hour
	authorityRest = 365 * 24 * time.Hour
	// servingLife is the lifetime of the server's own certificate, which clients do not
	// store. servingRest is how much of it is left when it is replaced.
	servingLife = 90 * 24 * time.Hour
	servingRest = 30 * 24 * time.Hour
)

// The names of the certificates must differ. OpenSSL treats a certificate with the same
// subject and issuer as self-signed, and rejects it.
const (
	authorityName = "watershed authority"
	servingName   = "localhost"
)

// authority signs the server's certificate. Its own certificate and key are in one file,
// so that they always match, whichever process writes it. The server's certificate never
// leaves memory, so each start creates another one. The authority is valid for loopback
// addresses only.
type authority struct {
	certificate *x509.Certificate
	pem         []byte // the certificate
	key         *ecdsa.PrivateKey
	now         func() time.Time
	// address is an additional address of the server, or nil.
	address net.IP

	mu      sync.Mutex
	serving *tls.Certificate
}

func (s *state) authorityFile() string { return filepath.Join(s.dir, "authority.pem") }

// openAuthority reads the authority. It creates one if there is none, or none that lasts
// long enough. Servers that start at the same time agree on one.
func (s *state) openAuthority(now func() time.Time) (a *authority, made bool, err error) {
	path := s.authorityFile()
	a, err = readAuthority(path, now)
	switch {
	case err == nil && a.certificate.NotAfter.After(now().Add(authorityRest)):
		return a, false, nil
	case err == nil:
		content, err := newAuthority(now())
		if err == nil {
			err = replaceFile(path, content)
		}
		if err != nil {
			return nil, false, fmt.Errorf("renew the certificate authority: %w", err)
		}
	case errors.Is(err, os.ErrNotExist):
		if err := createAuthority(path, now()); err != nil {
			return nil, false, fmt.Errorf("create a certificate authority: %w", err)
		}
	default:
		return nil, false, err
	}
	a, err = readAuthority(path, now)
	return a, true, err
}

// createAuthority creates an authority unless another process has just done so.
func createAuthority(path string, now time.Time) error {
	content, err := newAuthority(now)
	if err != nil {
		return err
	}
	name, err := writeBeside(path, content)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(name) }()
	if err := os.Link(name, path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// newAuthority returns a certificate and its key in PEM.
func newAuthority(now time.Time) ([]byte, error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: authorityName},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		// With a stolen key, an attacker can impersonate only this machine.
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         []string{"localhost"},
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(content, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}

// newKey returns a key and a serial number for a new certificate.
func newKey() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return key, serial, err
}

func readAuthority(path string, now func() time.Time) (*authority, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		// The parser has read a key, so its error is left out.
		return nil, fmt.Errorf("certificate authority %s does not contain a certificate and its key: delete it, and serve creates a new one", path)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("certificate authority %s was not created by watershed: delete it, and serve creates one", path)
	}
	return &authority{
		certificate: pair.Leaf,
		pem:         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}),
		key:         key,
		now:         now,
	}, nil
}

// serve returns the server's certificate, and replaces it when it is about to expire. It
// is used as [tls.Config.GetCertificate].
func (a *authority) serve(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.serving != nil && a.serving.Leaf.NotAfter.After(now.Add(servingRest)) {
		return a.serving, nil
	}
	next, err := a.issue(now)
	if err != nil {
		return nil, fmt.Errorf("create the server's certificate: %w", err)
	}
	a.serving = next
	return next, nil
}

func (a *authority) issue(now time.Time) (*tls.Certificate, error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(public)
	template := &x509.Certificate{
		SubjectKeyId: id[:20], // as in RFC 7093; the issuer's is added from its certificate
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: servingName},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(servingLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if a.address != nil {
		template.IPAddresses = append(template.IPAddresses, a.address)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
