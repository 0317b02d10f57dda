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
	// maxErrorBody is how much is read of an answer that is an error.
	maxErrorBody = 64 << 10
	// maxErrorText is how much of a text that is no Status errors repeat.
	maxErrorText = 512
)

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
		status = apierrors.NewGenericServerResponse(r.StatusCode, req.method, req.resource, req.name, text, 0, true).ErrStatus
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

// isReason reports that err has the reason.
func isReason(err error, reason reflector.Reason) bool {
	var e *reflector.Error
	return errors.As(err, &e) && e.Reason == reason
}
