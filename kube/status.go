// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/reflector"
)

const (
	// maxErrorBody is the maximum number of bytes that are read of an error response.
	maxErrorBody = 64 << 10
	// maxErrorText is the maximum number of bytes that an error quotes from a body that
	// is not a Status.
	maxErrorText = 512
)

// refused returns the error for a response without a success status.
func (r *response) refused(req *request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	if ended := r.asked.Err(); err != nil && ended != nil {
		return r.failed(err)
	}
	status, parsed := parseStatus(body)
	if !parsed {
		// The response comes from a proxy, or the path has no handler.
		text := string(body)
		if len(text) > maxErrorText {
			text = text[:maxErrorText]
		}
		text = strings.ToValidUTF8(strings.TrimSpace(text), "")
		status = apierrors.NewGenericServerResponse(r.StatusCode, http.MethodGet, req.resource, req.name, text, 0,
			true).ErrStatus
	}
	if status.Code == 0 {
		status.Code = int32(r.StatusCode)
	}
	after, given := retryAfter(r.Header)
	return req.Refused(&apierrors.StatusError{ErrStatus: status}, after, given)
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

// retryAfter returns the value of the Retry-After header, which is a number of seconds or
// a date.
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

// isReason reports whether err has the reason.
func isReason(err error, reason reflector.Reason) bool {
	var e *reflector.Error
	return errors.As(err, &e) && e.Reason == reason
}
