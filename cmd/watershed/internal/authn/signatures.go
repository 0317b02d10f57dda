// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"errors"

	"github.com/go-jose/go-jose/v4"
)

// signatures verifies the signatures of an issuer's tokens. It implements [oidc.KeySet].
// The key set of package oidc is not used: each forged token would make it read the keys
// again, and it would accept a withdrawn key for ever.
type signatures struct {
	algs     []jose.SignatureAlgorithm
	document *document[[]jose.JSONWebKey]
}

func newSignatures(i *issuer, algs []string) *signatures {
	s := &signatures{document: newDocument(keysRefresh, keysGrace, issuerTimeout, i.fetch)}
	for _, alg := range algs {
		s.algs = append(s.algs, jose.SignatureAlgorithm(alg))
	}
	return s
}

// keysError carries the status of a failed read of the keys past package oidc, which does
// not wrap errors.
type keysError struct{ err error }

type keysErrorKey struct{}

// VerifySignature implements [oidc.KeySet] for the verifier. If no key verifies the token,
// it reads the keys again, at most once in keysPause.
func (s *signatures) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	jws, err := jose.ParseSigned(jwt, s.algs)
	if err != nil {
		return nil, err
	}
	if len(jws.Signatures) != 1 {
		return nil, errors.New("the token does not have one signature")
	}
	keys, err := s.document.get(ctx)
	if err == nil {
		if payload, ok := verified(jws, keys); ok {
			return payload, nil
		}
		keys, err = s.document.newer(ctx, keysPause)
	}
	if err != nil {
		if failed, ok := ctx.Value(keysErrorKey{}).(*keysError); ok {
			failed.err = err
		}
		return nil, err
	}
	if payload, ok := verified(jws, keys); ok {
		return payload, nil
	}
	return nil, errors.New("no key verifies the signature")
}

// verified returns the payload of a token whose signature one of the keys verifies. A
// token without a key ID is tried with all keys.
func verified(jws *jose.JSONWebSignature, keys []jose.JSONWebKey) ([]byte, bool) {
	header := jws.Signatures[0].Header
	for i := range keys {
		key := &keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, true
		}
	}
	return nil, false
}
