// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
)

// retryAfter is the pause before the second attempt of a TokenReview.
const retryAfter = 200 * time.Millisecond

// reviewer checks tokens with TokenReviews.
type reviewer struct {
	client authenticationclient.AuthenticationV1Interface
	// anonymous has no credentials. It is nil if the connection has a transport of the
	// program, which may add some.
	anonymous authenticationclient.AuthenticationV1Interface
	// checkCallers returns nil if the cluster tells callers apart by their tokens.
	checkCallers func(context.Context) error
	audiences    []string
	journal      *journal
}

// newReviewer returns a reviewer with the credentials of a cluster.
func newReviewer(c *kube.Cluster, audiences []string, j *journal) (*reviewer, error) {
	cfg := c.Config()
	cfg.QPS, cfg.RateLimiter, cfg.Timeout = -1, nil, 0
	cfg.WarningHandler, cfg.WarningHandlerWithContext = rest.NoWarnings{}, nil
	client, err := newReviewClient(cfg)
	if err != nil {
		return nil, err
	}
	v := &reviewer{client: client, checkCallers: c.CheckCallers, audiences: audiences, journal: j}
	if cfg.Transport == nil {
		if v.anonymous, err = newReviewClient(rest.AnonymousClientConfig(cfg)); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// newReviewClient returns a client that does not follow redirects, which would send the token
// to another server.
func newReviewClient(cfg *rest.Config) (authenticationclient.AuthenticationV1Interface, error) {
	cfg.Wrap(limited)
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	own := *shared
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return authenticationclient.NewForConfigAndClient(cfg, &own)
}

// review returns the identity behind a token, or a status: 401 if the cluster refuses the
// token and 503 if it is not known whether the token is valid.
func (v *reviewer) review(ctx context.Context, token string) (*Identity, error) {
	status, err := v.create(ctx, token)
	if retriable(err) && timer.Sleep(ctx, retryAfter) == nil {
		status, err = v.create(ctx, token)
	}
	switch {
	case apierrors.IsForbidden(err) && v.anonymous != nil && len(v.audiences) == 0:
		return v.reviewSelf(ctx, token)
	case apierrors.IsForbidden(err):
		v.report("cannot check tokens: the right create tokenreviews.authentication.k8s.io is missing", token, err)
		return nil, unavailable(reviewForbidden)
	case err != nil:
		v.report("cannot check tokens", token, err)
		return nil, unavailable(reviewUnavailable)
	case !status.Authenticated:
		// kube-apiserver sets status.error for every token that it refuses, so the error
		// does not show that the review failed.
		return nil, unauthorized()
	case status.Error != "":
		v.report("cannot check tokens", token, errors.New("the TokenReview has a user and an error: "+status.Error))
		return nil, unavailable(reviewUnavailable)
	case len(v.audiences) > 0 && !slices.ContainsFunc(status.Audiences, func(a string) bool {
		return slices.Contains(v.audiences, a)
	}):
		return nil, unauthorized()
	}
	return tokenIdentity(status.User, token)
}

// reviewSelf asks the cluster with the token itself for its user. Every user may do that, so it
// works without the right to review the tokens of others, which people seldom have. Only
// kube-apiserver's own audiences are accepted that way. A proxy that adds credentials of its own
// would answer for every token with the user of its credentials, so the cluster is checked first.
func (v *reviewer) reviewSelf(ctx context.Context, token string) (*Identity, error) {
	if err := v.checkCallers(ctx); err != nil {
		message := reviewUnavailable
		if errors.Is(err, kube.ErrIndistinctCallers) {
			message = reviewIndistinct
		}
		v.report("cannot check tokens: the right create tokenreviews.authentication.k8s.io is missing, and the "+
			"tokens' users cannot be asked for", token, err)
		return nil, unavailable(message)
	}
	var result authenticationv1.SelfSubjectReview
	err := v.anonymous.RESTClient().Post().Resource("selfsubjectreviews").MaxRetries(0).SetHeader("Authorization",
		"Bearer "+token).
		Body(&authenticationv1.SelfSubjectReview{}).Do(ctx).Into(&result)
	switch {
	case apierrors.IsUnauthorized(err):
		return nil, unauthorized()
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		v.report("cannot check tokens: the right create tokenreviews.authentication.k8s.io is missing, and the user "+
			"of the token may not create selfsubjectreviews.authentication.k8s.io", token, err)
		return nil, unavailable(reviewForbidden)
	case err != nil:
		v.report("cannot check tokens", token, err)
		return nil, unavailable(reviewUnavailable)
	}
	return tokenIdentity(result.Status.UserInfo, token)
}

// tokenIdentity returns the identity of the user of a token, or a 401 for an anonymous user.
func tokenIdentity(user authenticationv1.UserInfo, token string) (*Identity, error) {
	id := newIdentity(user, expiry(token), MethodToken)
	if id == nil {
		return nil, unauthorized()
	}
	return id, nil
}

func (v *reviewer) create(ctx context.Context, token string) (*authenticationv1.TokenReviewStatus, error) {
	var result authenticationv1.TokenReview
	err := v.client.RESTClient().Post().Resource("tokenreviews").MaxRetries(0).Body(&authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: v.audiences},
	}).Do(ctx).Into(&result)
	return &result.Status, err
}

// report logs an error without the token, which a server may have repeated in it.
func (v *reviewer) report(message, token string, err error) {
	v.journal.report(message, strings.ReplaceAll(err.Error(), token, "[token]"))
}

// retriable reports whether a second attempt may succeed: the connection was lost, as it is
// if the server has restarted, or the server failed.
func retriable(err error) bool {
	return err != nil && (utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err))
}
