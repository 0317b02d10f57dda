// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// reserved are the beginnings of the names that Kubernetes gives a meaning, and of the names of
// service accounts in other clusters of the fleet. An issuer must not be able to name one.
var reserved = []string{"system:", "watershed:"}

// isReserved reports whether a name begins with one of them.
func isReserved(name string) bool {
	return slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// signing are the signature algorithms that may be configured.
var signing = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512,
}

// OIDCOptions configures an [OIDC].
type OIDCOptions struct {
	// Issuer is the URL of the issuer, with the scheme https. It must be equal to the
	// claim iss.
	Issuer string
	// Audience must be one of the values of the claim aud: the client ID.
	Audience string
	// UsernameClaim is the claim that contains the name. Default: sub.
	UsernameClaim string
	// UsernamePrefix is put before the name. It is mandatory.
	UsernamePrefix string
	// GroupsClaim is the claim that contains the groups: a string or a list. Default:
	// none, so that callers have no groups of the issuer.
	GroupsClaim string
	// GroupsPrefix is put before each group. It is mandatory if GroupsClaim is set.
	GroupsPrefix string
	// CAFile is a file with the certificates that the issuer is verified with. Default:
	// the roots of the system.
	CAFile string
	// SupportedAlgs are the accepted signature algorithms. Default: RS256.
	SupportedAlgs []string
	// Logger receives the causes of the errors that callers do not see. Default:
	// slog.Default().
	Logger *slog.Logger
}

func (o *OIDCOptions) validate() error {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("issuer %q: not a URL with https, a host and a path only", o.Issuer)
	case o.Audience == "":
		return fmt.Errorf("issuer %s: no audience", o.Issuer)
	}
	if err := validatePrefix("username", o.UsernamePrefix); err != nil {
		return fmt.Errorf("issuer %s: %w", o.Issuer, err)
	}
	if o.GroupsClaim != "" {
		if err := validatePrefix("groups", o.GroupsPrefix); err != nil {
			return fmt.Errorf("issuer %s: %w", o.Issuer, err)
		}
	}
	for _, alg := range o.SupportedAlgs {
		if !slices.Contains(signing, alg) {
			return fmt.Errorf("issuer %s: signature algorithm %q is not one of %s", o.Issuer, alg,
				strings.Join(signing, ", "))
		}
	}
	return nil
}

func validatePrefix(of, prefix string) error {
	switch {
	case prefix == "" || prefix == "-":
		return fmt.Errorf("%s prefix: it is mandatory, because names of the issuer must not equal other names", of)
	case isReserved(prefix):
		return fmt.Errorf("%s prefix %q: names that begin with %s are reserved", of, prefix,
			strings.Join(reserved, " or "))
	}
	return nil
}

// OIDC authenticates callers by ID tokens of one issuer. Its caches have the bounds of
// those of [Cluster]. All methods are safe for concurrent use.
type OIDC struct {
	opts     OIDCOptions
	issuer   *issuer
	keys     *signatures
	verifier *oidc.IDTokenVerifier
	tokens   *tokens
	stop     func() bool
}

// NewOIDC returns an authenticator for the tokens of one issuer. It does not send a
// request: the keys of the issuer are read when the first token needs them. Requests to
// the issuer are cancelled when ctx ends. The caller must call Close.
func NewOIDC(ctx context.Context, opts OIDCOptions) (*OIDC, error) {
	if opts.UsernameClaim == "" {
		opts.UsernameClaim = "sub"
	}
	if len(opts.SupportedAlgs) == 0 {
		opts.SupportedAlgs = []string{oidc.RS256}
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	i, err := newIssuer(opts.Issuer, opts.CAFile, newJournal(opts.Logger))
	if err != nil {
		return nil, err
	}
	o := &OIDC{opts: opts, issuer: i, keys: newSignatures(i, opts.SupportedAlgs)}
	o.verifier = oidc.NewVerifier(opts.Issuer, o.keys, &oidc.Config{
		ClientID: opts.Audience, SupportedSigningAlgs: opts.SupportedAlgs,
	})
	o.tokens = newTokens(10*time.Second, issuerTimeout, issuerUnavailable, o.verify)
	o.stop = context.AfterFunc(ctx, o.Close)
	return o, nil
}

// Close cancels the requests to the issuer and waits for them.
func (o *OIDC) Close() {
	o.stop()
	o.tokens.close()
	o.keys.document.close()
	o.issuer.transport.CloseIdleConnections()
}

// Authenticate returns the identity of the caller of r, or a status: 401 if r has no valid
// token of the issuer, 503 if the keys of the issuer cannot be read, 429 if there are too
// many invalid tokens. The identity has the prefixed name and groups and the group
// system:authenticated, but neither UID nor extra values. Client certificates are ignored.
func (o *OIDC) Authenticate(ctx context.Context, r *http.Request) (*Identity, error) {
	t, ok := BearerToken(r)
	if !ok || !issuedBy(t, o.opts.Issuer) {
		return nil, unauthorized()
	}
	return o.tokens.authenticate(ctx, t, r.RemoteAddr)
}

// Reauthenticate checks the token of r again, which had the identity id. It returns a 401 if
// it is not valid any more, and a 503 if that is not known.
func (o *OIDC) Reauthenticate(ctx context.Context, r *http.Request, id *Identity) error {
	t, ok := BearerToken(r)
	if !ok || id.expired(time.Now()) || !issuedBy(t, o.opts.Issuer) {
		return unauthorized()
	}
	now, err := o.tokens.again(ctx, t)
	if err == nil && !id.continues(now) {
		err = unauthorized()
	}
	return err
}

// Issued reports whether the token of a request claims to be of the issuer.
func (o *OIDC) Issued(r *http.Request) bool {
	t, ok := BearerToken(r)
	return ok && issuedBy(t, o.opts.Issuer)
}

// issuedBy reports whether a token claims to be of the issuer. Other tokens need no check
// that costs time or a request.
func issuedBy(token, issuer string) bool {
	payload, ok := payloadOf(token)
	var claims struct {
		Issuer string `json:"iss"`
	}
	return ok && json.Unmarshal(payload, &claims) == nil && claims.Issuer == issuer
}

// verify returns the identity of a token or a status.
func (o *OIDC) verify(ctx context.Context, token string) (*Identity, error) {
	var failed keysError
	t, err := o.verifier.Verify(context.WithValue(ctx, keysErrorKey{}, &failed), token)
	if failed.err != nil {
		return nil, failed.err
	}
	var claims map[string]json.RawMessage
	if err == nil {
		err = t.Claims(&claims)
	}
	var user authenticationv1.UserInfo
	if err == nil {
		user, err = o.user(claims)
	}
	var id *Identity
	if err == nil {
		id = newIdentity(user, t.Expiry, MethodOIDC)
	}
	if id == nil {
		o.issuer.journal.logger.Debug("token refused", "issuer", o.opts.Issuer, "err", err)
		return nil, unauthorized()
	}
	return id, nil
}

// user returns the user that the claims of a verified token name.
func (o *OIDC) user(claims map[string]json.RawMessage) (user authenticationv1.UserInfo, err error) {
	var name string
	if err := json.Unmarshal(claims[o.opts.UsernameClaim], &name); err != nil {
		return user, fmt.Errorf("claim %s is not a string", o.opts.UsernameClaim)
	}
	if raw, ok := claims["email_verified"]; ok && o.opts.UsernameClaim == "email" {
		var verified bool
		if err := json.Unmarshal(raw, &verified); err != nil || !verified {
			return user, errors.New("the email is not verified")
		}
	}
	if user.Username, err = prefixed(o.opts.UsernamePrefix, name); err != nil {
		return user, fmt.Errorf("claim %s: %w", o.opts.UsernameClaim, err)
	}
	raw, ok := claims[o.opts.GroupsClaim]
	if !ok || o.opts.GroupsClaim == "" {
		return user, nil
	}
	var groups []string
	var group string
	if json.Unmarshal(raw, &group) == nil && group != "" {
		groups = []string{group}
	} else if err := json.Unmarshal(raw, &groups); err != nil {
		return user, fmt.Errorf("claim %s is neither a string nor a list", o.opts.GroupsClaim)
	}
	for _, g := range groups {
		if g, err = prefixed(o.opts.GroupsPrefix, g); err != nil {
			return user, fmt.Errorf("claim %s: %w", o.opts.GroupsClaim, err)
		}
		user.Groups = append(user.Groups, g)
	}
	return user, nil
}

// prefixed returns a name of the issuer with its prefix. A name that is reserved is
// refused with and without the prefix, so that no way to remove or add a prefix makes it
// mean something else.
func prefixed(prefix, name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("the name is empty")
	case isReserved(name) || isReserved(prefix+name):
		return "", fmt.Errorf("names that begin with %s are reserved", strings.Join(reserved, " or "))
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", errors.New("the name contains a control character")
	}
	return prefix + name, nil
}
