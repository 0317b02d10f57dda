// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/lru"
)

const (
	// maxVerified and maxVerifiedBytes limit the certificates that are remembered as
	// verified. One takes about 1 KB. Without the cache a verification takes about 100 us.
	maxVerified, maxVerifiedBytes = 4096, 4 << 20
	// maxChain is how many certificates a caller may present. Each additional one can cost
	// a verification of a signature.
	maxChain = 8

	credentialID = "authentication.kubernetes.io/credential-id"
)

// uidOID is the type of the element of a subject that contains the UID of a user.
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

var (
	errNoAuthority = errors.New("the cluster has no certificate authority for clients")
	errChain       = errors.New("the chain has too many certificates")
	errSubject     = errors.New("the subject does not name a user")
)

// bundle is a set of certificate authorities, with the certificates that it has verified:
// they are forgotten when the set changes.
type bundle struct {
	pem   string
	roots *x509.CertPool // nil if the cluster does not accept certificates

	mu       sync.Mutex
	verified *lru.Map[[sha256.Size]byte, *Identity]
}

// newBundle parses a bundle of certificates in PEM. An empty one accepts no certificate.
func newBundle(pem string) (*bundle, error) {
	b := &bundle{pem: pem, verified: lru.New[[sha256.Size]byte](maxVerified, maxVerifiedBytes, (*Identity).size)}
	if pem == "" {
		return b, nil
	}
	b.roots = x509.NewCertPool()
	if !b.roots.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("the bundle contains no certificate")
	}
	return b, nil
}

// identity returns the identity of a verified chain, whose first certificate is the
// caller's. With fresh it does not use the cache.
func (b *bundle) identity(chain []*x509.Certificate, fresh bool) (*Identity, error) {
	if b.roots == nil {
		return nil, errNoAuthority
	}
	if len(chain) > maxChain {
		return nil, errChain
	}
	key := chainKey(chain)
	if !fresh {
		b.mu.Lock()
		id, ok := b.verified.Get(key)
		b.mu.Unlock()
		if ok && !id.expired(time.Now()) {
			return id, nil
		}
	}
	id, err := b.verify(chain)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.verified.Put(key, id)
	b.mu.Unlock()
	return id, nil
}

// chainKey hashes all certificates: whether the first one is valid also depends on the
// intermediates. DER contains its own length, so the concatenation is unambiguous.
func chainKey(chain []*x509.Certificate) (key [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range chain {
		h.Write(c.Raw)
	}
	h.Sum(key[:0])
	return key
}

func (b *bundle) verify(chain []*x509.Certificate) (*Identity, error) {
	opts := x509.VerifyOptions{Roots: b.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(chain) > 1 {
		opts.Intermediates = x509.NewCertPool()
		for _, c := range chain[1:] {
			opts.Intermediates.AddCert(c)
		}
	}
	paths, err := chain[0].Verify(opts)
	if err != nil {
		return nil, err
	}
	user, err := subjectUser(chain[0])
	if err != nil {
		return nil, err
	}
	// The certificate is valid while one of the paths is.
	var expires time.Time
	for _, path := range paths {
		first := slices.MinFunc(path, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(expires) {
			expires = first.NotAfter
		}
	}
	id := newIdentity(user, expires, MethodCertificate)
	if id == nil {
		return nil, errSubject
	}
	return id, nil
}

// subjectUser returns the user that a certificate names, as kube-apiserver does.
func subjectUser(c *x509.Certificate) (user authenticationv1.UserInfo, err error) {
	uid := ""
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(uidOID) {
			continue
		}
		value, ok := name.Value.(string)
		if !ok || value == "" || uid != "" {
			return user, errSubject
		}
		uid = value
	}
	if c.Subject.CommonName == "" {
		return user, errSubject
	}
	hash := sha256.Sum256(c.Raw)
	return authenticationv1.UserInfo{
		Username: c.Subject.CommonName,
		UID:      uid,
		Groups:   slices.Clone(c.Subject.Organization),
		Extra:    map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(hash[:])}},
	}, nil
}
