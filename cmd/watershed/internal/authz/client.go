// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/bounded"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica"
)

const (
	// retries is how often a review is repeated if the cluster asks for that with
	// Retry-After.
	retries = 2
	// maxResponse limits the response to a review, in bytes. It repeats the review, which
	// has the user's groups and the selectors of the request.
	maxResponse = 4 << 20
	// maxCause is how many bytes of a text of the cluster an error repeats.
	maxCause = 512
)

var errTooLarge = fmt.Errorf("response to an access review has more than %d bytes", maxResponse)

// client sends reviews to one cluster.
type client struct {
	cluster string
	self    bool // reviews are about the user of the connection
	rest    rest.Interface
	err     error // why there is no rest
}

// newClient returns a client with the credentials of c.
func newClient(c *kube.Cluster, self bool) *client {
	config := c.Config()
	config.QPS = -1 // the reviewer limits concurrency instead
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, nil
	config.ContentType, config.AcceptContentTypes = "", ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return bounded.Transport{Next: next, Limit: maxResponse, Err: errTooLarge}
	})
	typed, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return &client{cluster: c.Name(), self: self, err: err}
	}
	return &client{cluster: c.Name(), self: self, rest: typed.RESTClient()}
}

// review sends a review and returns the decision. The error wraps the status for the caller
// of the replica, and the cause, which is for the log only.
func (c *client) review(ctx context.Context, user *authenticationv1.UserInfo, a *replica.Attributes) (Decision, error) {
	if c.err != nil {
		return Decision{}, c.failed(apierrors.NewServiceUnavailable(noAnswer), c.err)
	}
	var status *authorizationv1.SubjectAccessReviewStatus
	request := c.rest.Post().MaxRetries(retries)
	var err error
	if c.self {
		spec := specOf(nil, a)
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: spec.ResourceAttributes, NonResourceAttributes: spec.NonResourceAttributes,
		}}
		var answer authorizationv1.SelfSubjectAccessReview
		err = request.Resource("selfsubjectaccessreviews").Body(&review).Do(ctx).Into(&answer)
		status = &answer.Status
	} else {
		review := authorizationv1.SubjectAccessReview{Spec: specOf(user, a)}
		var answer authorizationv1.SubjectAccessReview
		err = request.Resource("subjectaccessreviews").Body(&review).Do(ctx).Into(&answer)
		status = &answer.Status
	}
	if err != nil {
		return Decision{}, c.refused(err)
	}
	return c.decision(status)
}

// decision reads the answer to a review. kube-apiserver responds with 500 to a request if
// an authorizer fails and none allows the request, so that is not a denial.
func (c *client) decision(s *authorizationv1.SubjectAccessReviewStatus) (Decision, error) {
	if s.Allowed && s.Denied {
		return Decision{}, c.failed(apierrors.NewServiceUnavailable(notEvaluated),
			errors.New("the answer is both allowed and denied"))
	}
	if !s.Allowed && !onlyIgnoredSelectors(s.EvaluationError) {
		return Decision{}, c.failed(apierrors.NewServiceUnavailable(notEvaluated),
			errors.New(cut(s.EvaluationError, maxCause)))
	}
	// The copy does not keep the whole response in memory if the reason is a part of it.
	return Decision{Allowed: s.Allowed, Reason: strings.Clone(cut(s.Reason, maxReason))}, nil
}

// onlyIgnoredSelectors reports whether an evaluation error only means that the cluster has not
// taken a selector into account. The decision is then about all objects, and stricter.
func onlyIgnoredSelectors(evaluationError string) bool {
	if evaluationError == "" {
		return true
	}
	for _, e := range strings.Split(evaluationError, "; ") {
		if !strings.HasPrefix(e, "spec.resourceAttributes.") || !strings.HasSuffix(e, " ignored due to parse error") {
			return false
		}
	}
	return true
}

// Messages of the statuses. They do not have the cause: it can contain addresses that the
// caller does not need to know.
const (
	noAnswer     = "the cluster does not answer the review of this access"
	notEvaluated = "the cluster could not evaluate the review of this access"
	badLogin     = "the cluster does not accept the credentials of this replica for the review of this access"
	noRight      = "this replica needs the right to create subjectaccessreviews.authorization.k8s.io in the cluster, " +
		"which ClusterRole system:auth-delegator has"
	noSelfRight = "the owner of this replica needs the right to create selfsubjectaccessreviews.authorization.k8s.io " +
		"in the cluster, which ClusterRole system:basic-user has"
	busy = "too many access reviews are waiting for the cluster"
)

// refused returns the error for a review that the cluster did not accept.
func (c *client) refused(err error) error {
	switch {
	case apierrors.IsForbidden(err) && c.self:
		return c.failed(apierrors.NewServiceUnavailable(noSelfRight), err)
	case apierrors.IsForbidden(err):
		return c.failed(apierrors.NewServiceUnavailable(noRight), err)
	case apierrors.IsUnauthorized(err):
		return c.failed(apierrors.NewServiceUnavailable(badLogin), err)
	case apierrors.IsTooManyRequests(err):
		return c.failed(apierrors.NewTooManyRequests(busy, 1), err)
	}
	return c.failed(apierrors.NewServiceUnavailable(noAnswer), err)
}

// Unanswered reports whether an error means that the cluster did not answer. It is false if
// the cluster has answered that it refuses the review or the credentials.
func Unanswered(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Message == noAnswer
}

// LacksRight reports whether an error means that the replica has not the right to review the
// access of others.
func LacksRight(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Message == noRight
}

// failed returns an error that wraps a status and its cause.
func (c *client) failed(status *apierrors.StatusError, cause error) error {
	return fmt.Errorf("access review at cluster %s: %w: %w", c.cluster, status, cause)
}

// cut returns at most limit bytes of a text, without a part of a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
