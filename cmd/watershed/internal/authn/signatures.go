// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"errors"

	"github.com/go-jose/go-jose/v4"
)

var errNoKey = errors.New("no key verifies the signature")

// signatures verifies the signatures of an issuer's tokens. It implements [oidc.KeySet].
// The key set of package oidc is not used: each forged token would make it read the keys
// again, and it would accept a withdrawn key for ever.
type signatures struct {
	algs     []jose.SignatureAlgorithm
	document *document[[]jose.JSONWebKey]
}

func newSignatures(i *issuer, algs []string) *signatures {
	s := &signatures{document: newDocument(keysRefresh, keysGrace, issuerTimeout, issuerUnavailable, i.fetch)}
	for _, alg := range algs {
		s.algs = append(s.algs, jose.SignatureAlgorithm(alg))
	}
	return s
}

// keysError carries the status of a failed read of the keys past package oidc, which does
// not wrap errors.
type keysError struct{ err error }

type keysErrorKey struct{}

// VerifySignature implements [oidc.KeySet]. If no key verifies the token, it reads the keys
// again, at most once in keysPause. If they cannot be read, the token may still be valid
// unless its key is known.
func (s *signatures) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	jws, err := jose.ParseSigned(jwt, s.algs)
	if err != nil {
		return nil, err
	}
	if len(jws.Signatures) != 1 {
		return nil, errors.New("the token does not have one signature")
	}
	keys, err := s.document.get(ctx)
	known := false
	if err == nil {
		var payload []byte
		if payload, known = verified(jws, keys); payload != nil {
			return payload, nil
		}
		keys, err = s.document.newer(ctx, keysPause)
	}
	if err == nil {
		if payload, _ := verified(jws, keys); payload != nil {
			return payload, nil
		}
	} else if failed, ok := ctx.Value(keysErrorKey{}).(*keysError); ok && !known {
		failed.err = err
	}
	return nil, errNoKey
}

// verified returns the payload of a token if one of the keys verifies its signature, and
// whether the key that it names is among them. A token without a key ID is tried with all
// keys.
func verified(jws *jose.JSONWebSignature, keys []jose.JSONWebKey) (payload []byte, known bool) {
	header := jws.Signatures[0].Header
	for i := range keys {
		key := &keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID {
			continue
		}
		known = known || header.KeyID != ""
		if key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, true
		}
	}
	return nil, known
}
