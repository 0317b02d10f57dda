// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Absent authenticates the callers of clusters that do not exist. It accepts no credentials. Each
// name has the limits that a cluster has, so that the limits do not show whether a cluster exists.
type Absent struct{ tokens *tokens }

// NewAbsent returns an authenticator for all clusters that do not exist. Its caller must call
// Close.
func NewAbsent() *Absent {
	return &Absent{newTokens(10*time.Second, 10*time.Second, reviewUnavailable,
		func(context.Context, string) (*Identity, error) {
			return nil, unauthorized()
		})}
}

// Authenticate returns the 401 or 429 that a cluster with the name would return if it did not
// accept the credentials of r.
func (a *Absent) Authenticate(r *http.Request, name string) error {
	if t, ok := BearerToken(r); ok {
		from := source{absent: name, address: network(r.RemoteAddr)}
		if _, err := a.tokens.lookup(r.Context(), name+"\x00"+t, from, a.tokens.ttl,
			false); !apierrors.IsUnauthorized(err) {
			return err
		}
	}
	return unauthorized()
}

// Close waits for the checks that run.
func (a *Absent) Close() { a.tokens.close() }
