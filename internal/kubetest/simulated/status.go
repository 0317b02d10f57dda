// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The messages of the real server.
const (
	expiredList     = "The resourceVersion for the provided list is too old."
	expiredContinue = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

var statusType = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}

// failure returns an error with a status.
func failure(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}}
}

// noResource returns the error for unknown paths of a group.
func noResource() error {
	err := failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

func noMethod() error {
	err := failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource")
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

func unauthorized() error {
	return failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
}

func notAcceptable(message string) error {
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message)
}

// tooLarge returns the error for a version that was not reached in time.
func tooLarge(version uint64, newest uint32) error {
	err := apierrors.NewTimeoutError(
		fmt.Sprintf("Too large resource version: %d, current: %d", version, firstVersion+uint64(newest)), 1,
	)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// tooOld returns the error for a watch from a version whose changes were dropped.
func tooOld(version uint64, oldest uint32) error {
	return apierrors.NewResourceExpired(
		fmt.Sprintf("too old resource version: %d (%d)", version, firstVersion+uint64(oldest)),
	)
}

// statusOf returns the status of an error.
func statusOf(err error) metav1.Status {
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		status := s.Status()
		status.TypeMeta = metav1.TypeMeta{}
		return status
	}
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
}

// refuse sends an error, in an encoding that the client accepts.
func (c *Cluster) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	enc := jsonEncoding
	if a, ok := negotiate(r.Header.Get("Accept"), func(m media) bool { return m.as == "" }); ok {
		enc = a.encoding
	}
	raw, err := rawOf(enc, &status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	a := enc.wrap(statusType, len(raw))
	c.answer(w, int(status.Code), enc.contentType(), a.before, raw, a.after)
}

// answer sends a short body.
func (c *Cluster) answer(w http.ResponseWriter, code int, contentType string, parts ...[]byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	for _, p := range parts {
		n, err := w.Write(p)
		c.stats.sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// document sends JSON.
func (c *Cluster) document(w http.ResponseWriter, contentType string, doc any) {
	text, err := json.Marshal(doc)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.answer(w, http.StatusOK, contentType, text, []byte("\n"))
}
