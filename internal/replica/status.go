// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// failure is an error with a status that helpers of apierrors do not make.
func failure(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// detailed is an error that has details, though they say nothing.
func detailed(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}

// noPath is what the API server says of a path below one of its own types.
func noPath() error {
	return detailed(failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"))
}

// errNoPage is what it says of any other.
var errNoPage = errors.New("404 page not found")

// noMethod is what it says to a method that no path has.
func noMethod() error {
	return detailed(failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource"))
}

func tooLarge(version, current uint64) error {
	err := apierrors.NewTimeoutError("Too large resource version: "+strconv.FormatUint(version, 10)+", current: "+strconv.FormatUint(current, 10), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// notReady is what a client is told to whom nothing can be told yet.
func notReady() error {
	return apierrors.NewTooManyRequests("storage is (re)initializing", 1)
}

// unknown is the 503 for a request that cannot be answered yet. Clients of Kubernetes send it
// again after a second, ten times.
func unknown(what string) error {
	err := apierrors.NewServiceUnavailable(what)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// unreachable is the 503 for a request that needs clusters of which nothing is known. It
// gives the cause, after what, which is "" if the request is for that cluster alone. Only
// while one of them is being tried for the first time clients may expect an answer
// soon: otherwise kubectl, which asks for discovery five times, would repeat itself for 50 s.
func unreachable(members []*fleet.Member, what string) error {
	var causes []string
	soon := false
	for _, m := range members {
		text, err := shorten(m.Name(), mostName), m.Status().Err
		if err == nil {
			soon = true
			text += " has not answered yet"
		} else {
			text += " cannot be reached: " + shorten(firstOf(err).Error(), mostCause)
		}
		if len(causes) < 3 {
			causes = append(causes, "cluster "+text)
		}
	}
	message := strings.Join(causes, "; ")
	if n := len(members) - len(causes); n > 0 {
		message += fmt.Sprintf("; and %d more", n)
	}
	if what != "" {
		message = what + ": " + message
	}
	if soon {
		return unknown(message)
	}
	return apierrors.NewServiceUnavailable(message)
}

// firstOf returns the first of several errors: those of one cluster mostly repeat each other.
func firstOf(err error) error {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok || len(joined.Unwrap()) == 0 {
			return err
		}
		err = joined.Unwrap()[0]
	}
}

// unread is the 503 for a resource that has never been read because the cluster refuses or
// fails to send it, nil if it has been or is being read.
func unread(m *fleet.Member, feed *fleet.Feed) error {
	if _, err := feed.Now(); err == nil {
		return nil
	}
	cause := feed.Connection().Err
	if cause == nil {
		return nil
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s of cluster %s cannot be read: %s", feed.Resource().GroupResource(), shorten(m.Name(), mostName), shorten(cause.Error(), mostCause)))
}

// isResourceOf returns whether a resource is that of a path.
func isResourceOf(t target) func(kube.Resource) bool {
	return func(r kube.Resource) bool { return r.GroupVersionResource == t.GroupVersionResource }
}

// notMirrored is the answer for a resource that the cluster serves and the replica does not
// mirror. It is not a 404, from which a client would conclude that an object does not exist.
func notMirrored(r *http.Request, t target, where func() string) error {
	if verb := verb(r, t); verb != "get" {
		return readOnly(t.GroupResource(), verb, where())
	}
	err := apierrors.NewForbidden(t.GroupResource(), t.name, nil)
	err.ErrStatus.Message = fmt.Sprintf("%[1]s is not mirrored by this replica: to read it here, add %[1]s to --resources of watershed serve and leave it out of --except; or read it from %[2]s",
		t.GroupResource(), where())
	return err
}

// expired is what a client is told who asks for a version that is too old, with a
// token for going on without it if there is one.
func expired(message, token string) error {
	err := apierrors.NewResourceExpired(message)
	err.ErrStatus.Continue = token
	return err
}

// readOnly is the answer to everything that would change something.
func readOnly(r schema.GroupResource, verb, where string) error {
	err := apierrors.NewMethodNotSupported(r, verb)
	err.ErrStatus.Message += ": this is a read replica, write to " + where
	return err
}

// notCopied is the answer to who asks for something that is not made of objects, such
// as the log of a pod.
func notCopied(r schema.GroupResource, subresource, where string) error {
	err := apierrors.NewMethodNotSupported(r, "get")
	err.ErrStatus.Message = fmt.Sprintf("%s/%s cannot be had here: this is a replica of objects, without connections to nodes, ask %s", r.Resource, subresource, where)
	return err
}

// statusOf is the status that says what an error does.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}

// writeError answers with a status, in the encoding that the client takes.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errNoPage) {
		writeText(w, http.StatusNotFound, err.Error()+"\n")
		return
	}
	status := statusOf(err)
	m, negotiated := negotiate(r, ability{protobuf: true})
	if negotiated != nil {
		m = media{pretty: isPretty(r)}
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	body, contentType := encodeStatus(status, m)
	header := w.Header()
	header.Del("Content-Encoding")
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-cache, private")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body)
}

// writeDiscoveryError is writeError for a request that may be one for discovery. Of those
// client-go drops the message of an error, and shows only its warnings.
func writeDiscoveryError(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Add("Warning", warning(statusOf(err).Message))
	writeError(w, r, err)
}

func encodeStatus(status *metav1.Status, m media) (body []byte, contentType string) {
	if m.encoding == asProtobuf {
		if raw, err := status.Marshal(); err == nil {
			return envelope(nil, "v1", "Status", raw), mediaTypes[asProtobuf]
		}
	}
	body, err := json.Marshal(status)
	if err != nil {
		return []byte(err.Error()), "text/plain"
	}
	if m.encoding == asYAML {
		if text, err := yaml.JSONToYAML(body); err == nil {
			return text, mediaTypes[asYAML]
		}
	}
	return append(indented(body, m.pretty), '\n'), mediaTypes[asJSON]
}

// indented is JSON as people like it, if one asks.
func indented(body []byte, pretty bool) []byte {
	if !pretty {
		return body
	}
	var out bytes.Buffer
	if json.Indent(&out, body, "", "  ") != nil {
		return body
	}
	return out.Bytes()
}
