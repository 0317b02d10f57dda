// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watershed-project/watershed/reflector"
)

// request is what an error's meaning depends on besides the error.
type request struct {
	// doing is what errors begin with: list Pod.
	doing string
	// initialEvents were asked for, which old servers and fakes refuse.
	initialEvents bool
}

// failed is what an error of a client means to a reflector.
func (r request) failed(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, ended) {
			return fmt.Errorf("%s: %w: %w", r.doing, ended, cause)
		}
		return fmt.Errorf("%s: %w", r.doing, ended)
	}
	out := &reflector.Error{Err: fmt.Errorf("%s: %w", r.doing, err)}
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		if d := status.ErrStatus.Details; d != nil && d.RetryAfterSeconds > 0 {
			out.RetryAfter = time.Duration(d.RetryAfterSeconds) * time.Second
		}
		out.Reason = r.reason(status, out.RetryAfter > 0)
		return out
	}
	var network *url.Error
	switch {
	case utilnet.IsConnectionRefused(err):
		out.Reason = reflector.Refused
	case r.initialEvents && !errors.As(err, &network):
		// No server said this. It is a fake that does not know what to do with
		// the request, and would not the next time either.
		out.Reason = reflector.NotSupported
	}
	return out
}

// reason is what the kube package makes of the same status, from the same server.
func (r request) reason(err *apierrors.StatusError, retryAfter bool) reflector.Reason {
	switch code := err.ErrStatus.Code; {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || code == http.StatusGone:
		return reflector.Expired
	case isTooLarge(err):
		return reflector.TooLarge
	case code == http.StatusTooManyRequests || apierrors.IsTooManyRequests(err),
		code == http.StatusServiceUnavailable && retryAfter:
		return reflector.Busy
	case isNotServed(err):
		return reflector.NotServed
	case r.initialEvents && (code == http.StatusUnprocessableEntity || code == http.StatusBadRequest):
		return reflector.NotSupported
	case apierrors.IsInternalError(err):
		return reflector.Internal
	default:
		return reflector.Unknown
	}
}

// isTooLarge goes by the message too, as servers before 1.20 gave no cause.
func isTooLarge(err *apierrors.StatusError) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version")
}

// isNotServed is true if the server says that there is no such resource or, in
// plain text, no such path.
func isNotServed(err *apierrors.StatusError) bool {
	status := err.ErrStatus
	if status.Code != http.StatusNotFound || !apierrors.IsNotFound(err) {
		return false
	}
	if cause, text := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); text {
		return strings.Contains(cause.Message, "404 page not found")
	}
	return status.Details == nil || status.Details.Name == ""
}
