// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// VersionExpired is the message of a list at a version that is too old.
	VersionExpired = "The resourceVersion for the provided list is too old."
	// ContinueExpired is the message of a list with a continue token that is too old.
	ContinueExpired = "The provided continue parameter is too old to display a consistent list result. You can start " +
		"a new list without the continue parameter, or use the continue token in this response to retrieve the " +
		"remainder of the results. Continuing with the provided token results in an inconsistent list - objects that " +
		"were created, modified, or deleted between the time the first chunk was returned and now may show up in the " +
		"list."
	// ContinueForeign is the message of a list with a continue token that this server has
	// not given to this caller for this list.
	ContinueForeign = "The provided continue parameter is not valid for this list any more: start a new list without " +
		"it."
	// SetExpired is the message for a version from before the members changed that the
	// caller sees.
	SetExpired = "The clusters that you may read have changed since this resourceVersion: start a new list."
)

// ErrNoPage is returned for a path that kube-apiserver answers with plain text.
var ErrNoPage = errors.New("404 page not found")

// New returns an error with a status that package apierrors has no function for.
func New(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// Of returns the status of an error. An error without one is an internal error.
func Of(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return &s
}

// WithDetails adds empty details to an error, which kube-apiserver has in some.
func WithDetails(err error) error {
	var s *apierrors.StatusError
	if errors.As(err, &s) {
		s.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}

// NoPath returns the 404 for a path below one of the API server's own types.
func NoPath() error {
	return WithDetails(New(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource"))
}

// NoMethod returns the 405 for a method that the path does not have.
func NoMethod() error {
	return WithDetails(New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource"))
}

// TooLarge returns the 504 for a version that the copy has not reached in time.
func TooLarge(version, current uint64) error {
	err := apierrors.NewTimeoutError("Too large resource version: "+strconv.FormatUint(version, 10)+", current: "+
		strconv.FormatUint(current, 10), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}

// NotReady returns the 429 that is sent before a resource has synced.
func NotReady() error {
	return apierrors.NewTooManyRequests("storage is (re)initializing", 1)
}

// RetrySoon returns the 503 for a request that cannot be answered yet. Clients of
// Kubernetes repeat it after a second, ten times.
func RetrySoon(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// Expired returns the 410 for a version that is too old. Token, unless it is "", lets the
// client continue its list without that version.
func Expired(message, token string) error {
	err := apierrors.NewResourceExpired(message)
	err.ErrStatus.Continue = token
	return err
}

// ReadOnly returns the 405 for a request that would change an object.
func ReadOnly(r schema.GroupResource, verb, where string) error {
	err := apierrors.NewMethodNotSupported(r, verb)
	err.ErrStatus.Message += ": this is a read replica, write to " + where
	return err
}

// NotCopied returns the 405 for a subresource that is not made from objects, such as the
// log of a pod.
func NotCopied(r schema.GroupResource, subresource, where string) error {
	err := apierrors.NewMethodNotSupported(r, "get")
	err.ErrStatus.Message = fmt.Sprintf("%s/%s is not available here: this replica serves only subresources that are "+
		"made from the object; send the request to %s", r.Resource, subresource, where)
	return err
}

// NotMirrored returns the 403 for a read of a resource that the cluster serves and the
// replica does not mirror. It is not a 404, from which a client would conclude that an
// object does not exist.
func NotMirrored(r schema.GroupResource, name, where string) error {
	err := apierrors.NewForbidden(r, name, nil)
	err.ErrStatus.Message = fmt.Sprintf("%[1]s is not mirrored by this replica: to read it here, add %[1]s to "+
		"--resources of watershed serve and leave it out of --except; or read it from %[2]s", r, where)
	return err
}

// OtherVersion returns the 503 for a read of a resource in a version that the cluster serves,
// of which the copy has another version. It is not a 404, from which an informer would
// conclude that the resource has ended.
func OtherVersion(r schema.GroupVersionResource, version, where string) error {
	return apierrors.NewServiceUnavailable(
		fmt.Sprintf("%s is not mirrored in version %s: read it in version %s, or from %s", r.GroupResource(), r.Version,
			version, where),
	)
}
