// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watershed-project/watershed/kube"
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
	case kube.IsTooLarge(err):
		return reflector.TooLarge
	case code == http.StatusTooManyRequests || apierrors.IsTooManyRequests(err),
		code == http.StatusServiceUnavailable && retryAfter:
		return reflector.Busy
	case kube.IsNotServed(err):
		return reflector.NotServed
	case r.initialEvents && (code == http.StatusUnprocessableEntity || code == http.StatusBadRequest):
		return reflector.NotSupported
	case apierrors.IsInternalError(err):
		return reflector.Internal
	default:
		return reflector.Unknown
	}
}
