// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Key is the key pair of a process. It is made when the process starts, is never stored, and ends
// with the process, so there is nothing to issue, to rotate or to revoke.
type Key struct {
	private *ecdsa.PrivateKey
	hash    string
}

// NewKey returns a new key pair.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key for other replicas: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("key for other replicas: %w", err)
	}
	return &Key{private, hashOf(public)}, nil
}

// Hash returns the SHA-256 hash of the public key in hexadecimal digits. The others find it in the
// list of the group.
func (k *Key) Hash() string { return k.hash }

// hashOf returns the hash of a public key, as [Key.Hash] has it.
func hashOf(public []byte) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:])
}

// Certificate returns a certificate of the key that names the holder. It is signed with the key
// itself: the list of the group says which holder has which key.
func (k *Key) Certificate(holder string) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: holder},
		// The times mean nothing: whether a key counts is in the list of the group, and the clocks
		// of two replicas may differ by hours.
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, k.private.Public(), k.private)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate for other replicas: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: k.private}, nil
}

// errStranger means that the other side of a connection is not the replica that it should be.
var errStranger = errors.New("not a replica of the group")

// matches returns an error unless a connection is to a replica. TLS has verified that the other side
// has the private key of its certificate.
func matches(p *Peer, state *tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return fmt.Errorf("no certificate: %w", errStranger)
	}
	c := state.PeerCertificates[0]
	if hashOf(c.RawSubjectPublicKeyInfo) != p.Key || c.Subject.CommonName != p.Holder {
		return fmt.Errorf("certificate of %.64q: %w", c.Subject.CommonName, errStranger)
	}
	return nil
}

// serverTLS returns the TLS configuration of the port for replicas.
func (e *Exchange) serverTLS(own tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, SessionTicketsDisabled: true,
		// No authority signs these certificates, so the key is looked up instead.
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := e.listed(&state)
			return err
		},
	}
}

// clientTLS returns the TLS configuration for connections to a replica. With TLS 1.3 the other side
// has to show its key first, so a stranger does not even see the certificate of this replica.
func clientTLS(own tls.Certificate, p Peer) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
		// VerifyConnection compares the key. There is no authority and no host name to verify.
		InsecureSkipVerify: true,
		VerifyConnection:   func(state tls.ConnectionState) error { return matches(&p, &state) },
	}
}
