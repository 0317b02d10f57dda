// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

// caller is the identity of a request.
type caller struct {
	authn.Identity
	// owner means that the caller runs the server. The identity then has no groups: each
	// cluster knows the owner by the credentials of the kubeconfig.
	owner bool
	// at is the member that has authenticated the caller, nil for the owner and for an
	// identity of OpenID Connect, which no member has authenticated.
	at *fleet.Member
	// impersonator is the caller that has presented the credential, if the identity is that
	// of another user, and impersonation the rights that this needs.
	impersonator  *caller
	impersonation []replica.Attributes
}

// key returns a text that no two callers share. It is not a secret.
func (c *caller) key() string {
	switch {
	case c.owner:
		return "owner"
	case c.at != nil:
		return "cluster\x00" + c.at.Name() + "\x00" + c.at.Identity().UID + "\x00" + c.Username
	}
	return "oidc\x00" + c.Username
}

// presenter returns the caller that has presented the credential of the request.
func (c *caller) presenter() *caller {
	if c.impersonator != nil {
		return c.impersonator
	}
	return c
}

// identity returns a digest of everything that a decision about the caller depends on: name, UID,
// groups and extra values, and the same of its impersonator.
func (c *caller) identity() [sha256.Size]byte {
	h := sha256.New()
	for _, one := range []*caller{c, c.presenter()} {
		text, _ := json.Marshal(&one.UserInfo) // strings can always be encoded, and keys are sorted
		fmt.Fprintf(h, "%s\x00%s\x00", one.key(), text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// withheld returns why requests of the caller cannot be passed on to a cluster with the
// caller's own credentials, "" if they can.
func (c *caller) withheld() string {
	switch {
	case c.owner:
		return "the owner's token cannot be passed on; use your own credentials, see watershed kubeconfig " +
			"--credentials user"
	case c.Method == authn.MethodCertificate:
		return "a client certificate cannot be passed on; use a token, or send the request there"
	}
	return ""
}

// credentialOf returns a digest of the credentials of a request.
func credentialOf(r *http.Request) [sha256.Size]byte {
	h := sha256.New()
	for _, name := range []string{"Authorization", "Sec-Websocket-Protocol"} {
		for _, value := range r.Header.Values(name) {
			h.Write([]byte(name + "\x00" + value + "\x00"))
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		h.Write(r.TLS.PeerCertificates[0].Raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Call is the record of a request: the hooks fill it in, and the audit reads it. It is
// used by the goroutine of the request only.
type Call struct {
	// User is the identity that the request was decided for, nil before it is known.
	User *authenticationv1.UserInfo
	// Impersonator is the caller, if the request is for another user, else nil. Whether the caller
	// may be that user has been decided, except if the request is passed on to the cluster.
	Impersonator *authenticationv1.UserInfo
	// Decision is "allow" or "forbid", "" before there is one, and Reason is its reason.
	Decision, Reason string

	caller *caller
	// end has the functions to call when the response is complete.
	end []func()
}

// recordImpersonation records the user that a request names, if the cluster is to decide whether
// the caller may be that user. A request that the cluster cannot understand is left as it is.
func (c *Call) recordImpersonation(r *http.Request) {
	if !impersonates(r) || c.Impersonator != nil {
		return
	}
	if user, _, err := impersonated(r.Header); err == nil {
		c.User, c.Impersonator = &user, &c.caller.UserInfo
	}
}

type callKey struct{}

// CallOf returns the record of a request that [Control.Handler] handles.
func CallOf(r *http.Request) *Call {
	c, _ := r.Context().Value(callKey{}).(*Call)
	return c
}

// recorded returns a request that has a record, and a function to call when its response is
// complete.
func recorded(r *http.Request) (_ *http.Request, end func()) {
	call := &Call{}
	return r.WithContext(context.WithValue(r.Context(), callKey{}, call)), func() {
		for _, end := range call.end {
			end()
		}
	}
}
