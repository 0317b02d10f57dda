// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// The methods of an [Identity].
const (
	MethodCertificate = "certificate"
	MethodToken       = "token"
	MethodOIDC        = "oidc"
)

// Identity is an authenticated caller. Callers of this package share it with a cache and
// must not modify it.
type Identity struct {
	authenticationv1.UserInfo
	// Expires is when the credentials end: NotAfter of the certificate and of its
	// issuers, or exp of a JWT. It is zero if the credentials do not tell.
	Expires time.Time
	// Method is one of the constants above.
	Method string
}
