// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package authority makes certificates for the API servers of tests. Each authority is
// new, exists only where its maker keeps it, and is valid for a year.
//
//	a, err := authority.New("kubetest")
//	cert, key, err := a.Serving([]string{"localhost"}, net.IPv4(127, 0, 0, 1))
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// Authority signs certificates.
type Authority struct {
	root *x509.Certificate
	der  []byte
	key  *ecdsa.PrivateKey
}

// New returns an authority with a key of its own.
func New(name string) (*Authority, error) {
	now := time.Now()
	a := &Authority{root: &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}}
	var err error
	a.der, a.key, err = a.sign(a.root, nil)
	return a, err
}

// PEM returns the certificate of the authority.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})
}

// Serving returns a certificate in DER for an API server with these names and addresses,
// and its new key.
func (a *Authority) Serving(names []string, addresses ...net.IP) (der []byte, key *ecdsa.PrivateKey, err error) {
	return a.ServingUntil(a.root.NotAfter, names, addresses...)
}

// ServingUntil returns a certificate like [Authority.Serving] that is valid until a time.
func (a *Authority) ServingUntil(
	end time.Time, names []string, addresses ...net.IP,
) (der []byte, key *ecdsa.PrivateKey, err error) {
	return a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    a.root.NotBefore,
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     names,
		IPAddresses:  addresses,
	}, a.key)
}

// Client returns a certificate of a user in PEM, and its new key.
func (a *Authority) Client(user string) (cert, key []byte, err error) {
	der, private, err := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(3),
		Subject:      pkix.Name{CommonName: user},
		NotBefore:    a.root.NotBefore,
		NotAfter:     a.root.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.key)
	if err != nil {
		return nil, nil, err
	}
	if key, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), nil
}

// sign makes a key and a certificate for it. The certificate is signed with signer or, if
// that is nil, with the new key.
func (a *Authority) sign(
	cert *x509.Certificate, signer *ecdsa.PrivateKey,
) (der []byte, key *ecdsa.PrivateKey, err error) {
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if signer == nil {
		signer = key
	}
	der, err = x509.CreateCertificate(rand.Reader, cert, a.root, key.Public(), signer)
	return der, key, err
}
