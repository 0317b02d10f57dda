// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import "net/http"

// BearerToken returns the bearer token of a request, and false if there is none or more than
// one, or if it is malformed.
func BearerToken(r *http.Request) (string, bool) {
	t, err := token(r)
	return t, err == nil && t != ""
}

// Issued reports whether the token of a request claims to be of the issuer.
func (o *OIDC) Issued(r *http.Request) bool {
	t, ok := BearerToken(r)
	return ok && issuedBy(t, o.opts.Issuer)
}
