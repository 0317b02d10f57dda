// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// The methods of an [Identity].
const (
	MethodCertificate = "certificate"
	MethodToken       = "token"
	MethodOIDC        = "oidc"
)

const (
	anonymous          = "system:anonymous"
	allAuthenticated   = "system:authenticated"
	allUnauthenticated = "system:unauthenticated"
)

// Identity is an authenticated caller. A cache shares it between requests, so it must not
// be modified.
type Identity struct {
	authenticationv1.UserInfo
	// Expires is when the credentials end: the first NotAfter in the chain of a
	// certificate, or exp of a JWT. It is zero if the credentials do not contain it.
	Expires time.Time
	// Method is one of the constants above.
	Method string
}

// newIdentity returns the identity of a user whose credentials are valid. It adds the
// group system:authenticated as kube-apiserver does. It returns nil for a user without a
// name and for an anonymous one.
func newIdentity(user authenticationv1.UserInfo, expires time.Time, method string) *Identity {
	if user.Username == "" || user.Username == anonymous || slices.Contains(user.Groups, allUnauthenticated) {
		return nil
	}
	if !slices.Contains(user.Groups, allAuthenticated) {
		user.Groups = append(slices.Clip(user.Groups), allAuthenticated)
	}
	return &Identity{UserInfo: user, Expires: expires, Method: method}
}

// continues reports whether now, the result of a new check of the same credentials, has
// at least the rights of id: the same user with all groups. It ignores Extra, because
// some authenticators write a new assertion into it at each check.
func (id *Identity) continues(now *Identity) bool {
	lost := func(group string) bool { return !slices.Contains(now.Groups, group) }
	return now.Username == id.Username && now.UID == id.UID && !slices.ContainsFunc(id.Groups, lost)
}

// expired reports whether the credentials have ended.
func (id *Identity) expired(now time.Time) bool {
	return !id.Expires.IsZero() && !now.Before(id.Expires)
}

// size returns about how many bytes the identity takes.
func (id *Identity) size() int {
	n := 256 + len(id.Username) + len(id.UID)
	for _, group := range id.Groups {
		n += 16 + len(group)
	}
	for key, values := range id.Extra {
		n += 64 + len(key)
		for _, value := range values {
			n += 16 + len(value)
		}
	}
	return n
}
