// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// SealKey is the key of the seals of a process. It is random, so tokens of another process
// are not accepted.
type SealKey [sha256.Size]byte

// NewSealKey returns a random key.
func NewSealKey() *SealKey {
	var key SealKey
	_, _ = rand.Read(key[:]) // never fails
	return &key
}

// Seal binds continue tokens of the fleet to one caller, one list and one set of clusters. The zero
// value does not bind them.
//
// Tokens of a list of one cluster need no seal. Such a token has a version and a key, and the caller
// may read the list at that version without a token too (resourceVersionMatch=Exact). Each request is
// authorized, with a token or without. So a changed token, or one of another caller, shows nothing more.
// kube-apiserver does not seal its tokens for the same reason.
type Seal struct {
	key *SealKey
	// scope is what a token is bound to.
	scope []byte
}

// Seal returns the seal of a caller for the list that the parts identify. Without a caller
// it is the zero value.
func (k *SealKey) Seal(caller string, parts ...string) Seal {
	if caller == "" {
		return Seal{}
	}
	scope := appendPart(nil, caller)
	for _, part := range parts {
		scope = appendPart(scope, part)
	}
	return Seal{key: k, scope: scope}
}

// appendPart appends a text with its length, so that different parts have different bytes.
func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// sumLength is how many bytes of the hash a token has.
const sumLength = 16

// sum returns the seal of a token, "" if tokens are not bound.
func (s Seal) sum(t token) string {
	if s.key == nil {
		return ""
	}
	t.Seal = ""
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write(s.scope)
	mac.Write(t.encode())
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:sumLength])
}

// fits reports whether a token was made for the caller and the list.
func (s Seal) fits(t token) bool {
	return s.key == nil || hmac.Equal([]byte(s.sum(t)), []byte(t.Seal))
}
