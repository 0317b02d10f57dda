// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/reflector"
)

const (
	// maxErrorBody is how much is read of an answer that is an error.
	maxErrorBody = 64 << 10
	// maxErrorText is how much of a text that is no Status errors repeat.
	maxErrorText = 512
)

// expectation is what an error's meaning depends on besides the error.
type expectation struct {
	resource schema.GroupResource
	name     string // of the object that was asked for
	// collection: not found may mean that the resource is not served.
	collection bool
	// initialEvents were asked for, which old servers refuse.
	initialEvents bool
}

// refused makes an error of an answer that is not good.
func (r *response) refused(req *request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	if ended := r.asked.Err(); err != nil && ended != nil {
		return r.failed(err)
	}
	status, parsed := parseStatus(body)
	if !parsed {
		// The answer of a proxy, or a path that no handler is there for.
		text := string(body)
		if len(text) > maxErrorText {
			text = text[:maxErrorText]
		}
		text = strings.ToValidUTF8(strings.TrimSpace(text), "")
		status = apierrors.NewGenericServerResponse(r.StatusCode, req.method, req.expect.resource, req.expect.name, text, 0, true).ErrStatus
	}
	if status.Code == 0 {
		status.Code = int32(r.StatusCode)
	}
	after, given := retryAfter(r.Header)
	return req.expect.error(req.doing, status, after, given)
}

// parseStatus reads a Status in JSON or protobuf.
func parseStatus(body []byte) (metav1.Status, bool) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return metav1.Status{}, false
	}
	status, ok := obj.(*metav1.Status)
	if !ok || status.Status == metav1.StatusSuccess {
		return metav1.Status{}, false
	}
	return *status, true
}

// retryAfter is the header of that name, which is a number of seconds or a date.
func retryAfter(h http.Header) (time.Duration, bool) {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

// error is what the server's status means. after is what the header says, if it
// is given.
func (e expectation) error(doing string, status metav1.Status, after time.Duration, given bool) error {
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 && !given {
		after, given = time.Duration(d.RetryAfterSeconds)*time.Second, true
	}
	err := &apierrors.StatusError{ErrStatus: status}
	return &reflector.Error{
		Reason:     e.reason(err, given),
		RetryAfter: after,
		Err:        fmt.Errorf("%s: %w", doing, err),
	}
}

func (e expectation) reason(err *apierrors.StatusError, retryAfter bool) reflector.Reason {
	switch code := err.ErrStatus.Code; {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || code == http.StatusGone:
		return reflector.Expired
	case IsTooLarge(err):
		return reflector.TooLarge
	case code == http.StatusTooManyRequests,
		code == http.StatusServiceUnavailable && retryAfter:
		return reflector.Busy
	case e.collection && IsNotServed(err):
		return reflector.NotServed
	case e.initialEvents && (code == http.StatusUnprocessableEntity || code == http.StatusBadRequest):
		return reflector.NotSupported
	case code == http.StatusInternalServerError && apierrors.IsInternalError(err):
		return reflector.Internal
	default:
		return reflector.Unknown
	}
}

// IsTooLarge reports that a server has not reached the version that it was asked
// for. It goes by the message too, as servers before 1.20 gave no cause.
func IsTooLarge(err error) bool {
	const message = "Too large resource version"
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), message)
}

// IsNotServed reports that a server says that there is no such resource or, in
// plain text, no such path. An object that was not found, such as the cluster of a
// proxy for many clusters, or a page of a web server's is something else.
func IsNotServed(err *apierrors.StatusError) bool {
	status := err.ErrStatus
	if status.Code != http.StatusNotFound || !apierrors.IsNotFound(err) {
		return false
	}
	if cause, text := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); text {
		return strings.Contains(cause.Message, "404 page not found")
	}
	return status.Details == nil || status.Details.Name == ""
}

// isReason reports that err has the reason.
func isReason(err error, reason reflector.Reason) bool {
	var e *reflector.Error
	return errors.As(err, &e) && e.Reason == reason
}
