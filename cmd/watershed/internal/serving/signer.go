// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"
)

const (
	// signerLife is how long clients can trust a signer before they need another
	// kubeconfig.
	signerLife = 10 * 365 * 24 * time.Hour
	// servingLife is the lifetime of the server's own certificate, which clients do not
	// store.
	servingLife = 90 * 24 * time.Hour
)

// The names of the certificates must differ. OpenSSL treats a certificate with the same
// subject and issuer as self-signed, and rejects it.
const (
	signerName  = "watershed authority"
	servingName = "localhost"
)

// signer is a certificate that signs the server's, and its key.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// hosts are host names and addresses.
type hosts struct {
	names     []string
	addresses []net.IP
}

// loopback are the hosts that every signer may sign for.
func loopback() hosts {
	return hosts{names: []string{"localhost"}, addresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
}

// add returns the hosts with further ones, which are in text.
func (h hosts) add(texts []string) hosts {
	for _, text := range texts {
		if ip := net.ParseIP(text); ip == nil {
			text = strings.ToLower(text)
			if !slices.Contains(h.names, text) {
				h.names = append(h.names, text)
			}
		} else if !slices.ContainsFunc(h.addresses, ip.Equal) {
			h.addresses = append(h.addresses, ip)
		}
	}
	return h
}

// newSigner returns a signer that is valid for loopback addresses and the given hosts
// only, and its PEM.
func newSigner(h hosts, now time.Time) (*signer, error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: signerName},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(signerLife),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		// With a stolen key, an attacker can impersonate only this machine.
		PermittedDNSDomainsCritical: true,
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
		},
	}
	for _, name := range h.names {
		template.PermittedDNSDomains = append(template.PermittedDNSDomains, strings.TrimPrefix(name, "*."))
	}
	for _, ip := range h.addresses {
		if ip4 := ip.To4(); ip4 != nil {
			ip = ip4
		}
		if len(ip) == net.IPv6len || !ip.IsLoopback() {
			template.PermittedIPRanges = append(template.PermittedIPRanges,
				&net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &signer{certificate, key}, err
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

// permits reports whether the signer may sign for all of the hosts.
func (s *signer) permits(h hosts) bool {
	for _, name := range h.names {
		name = strings.TrimPrefix(name, "*.")
		if !slices.ContainsFunc(s.certificate.PermittedDNSDomains, func(d string) bool {
			return name == d || strings.HasSuffix(name, "."+d)
		}) {
			return false
		}
	}
	for _, ip := range h.addresses {
		if !slices.ContainsFunc(s.certificate.PermittedIPRanges, func(n *net.IPNet) bool { return n.Contains(ip) }) {
			return false
		}
	}
	return true
}

// hosts returns the hosts that the signer may sign for, without the rest of 127.0.0.0/8.
func (s *signer) hosts() hosts {
	h := loopback().add(s.certificate.PermittedDNSDomains)
	for _, n := range s.certificate.PermittedIPRanges {
		if ones, bits := n.Mask.Size(); ones == bits {
			h = h.add([]string{n.IP.String()})
		}
	}
	return h
}

// issue returns a certificate for a server.
func (s *signer) issue(h hosts, now time.Time) (*tls.Certificate, error) {
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
		DNSNames:     h.names,
		IPAddresses:  h.addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, key.Public(), s.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// errNotSigners is returned for a file that does not consist of certificates, each with its
// key.
var errNotSigners = errors.New("not pairs of a certificate and its key")

// parseSigners returns the signers in a file. Errors do not quote the file, which has keys.
func parseSigners(content []byte) ([]*signer, error) {
	var signers []*signer
	for rest := content; len(bytes.TrimSpace(rest)) > 0; {
		certificate, after := pem.Decode(rest)
		if certificate == nil {
			return nil, errNotSigners
		}
		key, after := pem.Decode(after)
		if key == nil {
			return nil, errNotSigners
		}
		rest = after
		pair, err := tls.X509KeyPair(pem.EncodeToMemory(certificate), pem.EncodeToMemory(key))
		if err != nil {
			return nil, errNotSigners
		}
		private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
		if !ok || !pair.Leaf.IsCA {
			return nil, errNotSigners
		}
		signers = append(signers, &signer{pair.Leaf, private})
	}
	if len(signers) == 0 {
		return nil, errNotSigners
	}
	return signers, nil
}

// formatSigners returns the content of a file with signers.
func formatSigners(signers []*signer) ([]byte, error) {
	var content []byte
	for _, s := range signers {
		private, err := x509.MarshalPKCS8PrivateKey(s.key)
		if err != nil {
			return nil, err
		}
		content = append(content, s.pem()...)
		content = append(content, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	}
	return content, nil
}

// pem returns the certificate.
func (s *signer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw})
}
