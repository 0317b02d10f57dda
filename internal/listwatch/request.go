// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package listwatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/reflector"
)

// Request holds the properties of a request that determine what an error means.
type Request struct {
	// Doing is the prefix of every error: "list pods in prod-eu".
	Doing string
	// Collection is set if the request is not for a single object: a 404 can mean that
	// the resource is not served.
	Collection bool
	// InitialEvents is set if the request is for initial events, which old servers
	// reject.
	InitialEvents bool
}

// Ended returns an error if ctx has ended, with its cause.
func (r Request) Ended(ctx context.Context) error {
	ended := ctx.Err()
	if ended == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ended) {
		return fmt.Errorf("%s: %w: %w", r.Doing, ended, cause)
	}
	return fmt.Errorf("%s: %w", r.Doing, ended)
}

// Refused returns the error of a request that the server has rejected. after is the value
// of the Retry-After header if given is true.
func (r Request) Refused(err *apierrors.StatusError, after time.Duration, given bool) *reflector.Error {
	err = &apierrors.StatusError{ErrStatus: err.ErrStatus} // others may hold the original
	shorten(&err.ErrStatus)
	if d := err.ErrStatus.Details; d != nil && d.RetryAfterSeconds > 0 && !given {
		after, given = time.Duration(d.RetryAfterSeconds)*time.Second, true
	}
	return &reflector.Error{
		Reason:     r.reason(err, given),
		RetryAfter: after,
		Err:        fmt.Errorf("%s: %w", r.Doing, err),
	}
}

const (
	// maxMessage is how many bytes of a server's message an error keeps: statuses keep
	// errors, and log lines contain them.
	maxMessage = 2 << 10
	// maxCauses is how many causes of a status an error keeps.
	maxCauses = 8
	// maxToken is how many bytes a continue token and a version may have. The API server
	// makes a token of the last key, which has less than 1 KiB.
	maxToken = 16 << 10
	// maxName is how many bytes of any other text of a status an error keeps.
	maxName = 256
)

// shorten cuts the texts of a status that came from a server.
func shorten(s *metav1.Status) {
	s.Message = cut(s.Message, maxMessage)
	s.Reason = metav1.StatusReason(cut(string(s.Reason), maxName))
	if len(s.ResourceVersion)+len(s.Continue) > maxToken {
		s.ListMeta = metav1.ListMeta{}
	}
	if s.Details == nil {
		return
	}
	d := *s.Details
	d.Name, d.Group, d.Kind = cut(d.Name, maxName), cut(d.Group, maxName), cut(d.Kind, maxName)
	if len(d.UID) > maxName {
		d.UID = ""
	}
	d.Causes = slices.Clone(d.Causes[:min(len(d.Causes), maxCauses)])
	for i := range d.Causes {
		c := &d.Causes[i]
		c.Type, c.Message, c.Field = metav1.CauseType(cut(string(c.Type), maxName)), cut(c.Message, maxMessage),
			cut(c.Field, maxName)
	}
	s.Details = &d
}

// cut returns the beginning of a text, without holding the rest.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(strings.Clone(text[:most]), "") + "..."
}

// Undecodable returns the error for one object that cannot be read. key is empty if it is
// not known. nameless is set if the object has no name.
func (r Request) Undecodable(key string, nameless bool, err error) *reflector.Error {
	return &reflector.Error{
		Reason: reflector.Undecodable, Key: key, Nameless: nameless, Err: fmt.Errorf("%s: %w", r.Doing, err),
	}
}

// reason returns the meaning of a status for a reflector. retryAfter is set if the server
// sent a time to retry.
func (r Request) reason(err *apierrors.StatusError, retryAfter bool) reflector.Reason {
	switch code := err.ErrStatus.Code; {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || code == http.StatusGone:
		return reflector.Expired
	case isTooLarge(err):
		return reflector.TooLarge
	case apierrors.IsTooManyRequests(err),
		code == http.StatusServiceUnavailable && retryAfter:
		return reflector.Busy
	case r.Collection && isNotServed(err):
		return reflector.NotServed
	case r.InitialEvents && (code == http.StatusUnprocessableEntity || code == http.StatusBadRequest):
		return reflector.NotSupported
	case code == http.StatusInternalServerError && apierrors.IsInternalError(err):
		return reflector.Internal
	default:
		return reflector.Unknown
	}
}

// isTooLarge reports whether a server has not reached the version in the request. It
// checks the message too, because servers before 1.20 do not send a cause.
func isTooLarge(err error) bool {
	const message = "Too large resource version"
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), message)
}

// isNotServed reports whether a server does not serve the resource or, if it responds in
// plain text, the path. A missing object, such as the cluster behind a proxy for many
// clusters, and the error page of a web server do not count.
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
