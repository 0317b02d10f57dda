// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit

import (
	"net"
	"net/http"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/replica"
)

// The longest values in an event, in bytes. Longer ones are cut: clients choose them.
const (
	maxURI = 4 << 10
	// maxText is the limit of the user agent, of names and of parts of the path.
	maxText = 1 << 10
	// maxUser is the limit of an identity as a whole. Of a larger one, the name, the UID and
	// the first groups remain, up to maxGroups bytes.
	maxUser   = 16 << 10
	maxGroups = 8 << 10
)

// microTime is the format of times in events: that of metav1.MicroTime, in UTC.
const microTime = "2006-01-02T15:04:05.000000Z"

// event is an Event of audit.k8s.io/v1 with the fields that a replica sets.
type event struct {
	Kind             string                     `json:"kind"`
	APIVersion       string                     `json:"apiVersion"`
	Level            string                     `json:"level"`
	AuditID          string                     `json:"auditID"`
	Stage            string                     `json:"stage"`
	RequestURI       string                     `json:"requestURI"`
	Verb             string                     `json:"verb"`
	User             authenticationv1.UserInfo  `json:"user"`
	ImpersonatedUser *authenticationv1.UserInfo `json:"impersonatedUser,omitempty"`
	SourceIPs        []string                   `json:"sourceIPs,omitempty"`
	UserAgent        string                     `json:"userAgent,omitempty"`
	ObjectRef        *objectRef                 `json:"objectRef,omitempty"`
	ResponseStatus   responseStatus             `json:"responseStatus"`
	Received         string                     `json:"requestReceivedTimestamp"`
	Reached          string                     `json:"stageTimestamp"`
	Annotations      *annotations               `json:"annotations,omitempty"`
}

// objectRef is the object or the resource that a request is for.
type objectRef struct {
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

// responseStatus is the result of a request.
type responseStatus struct {
	Status string              `json:"status,omitempty"`
	Reason metav1.StatusReason `json:"reason,omitempty"`
	Code   int                 `json:"code,omitempty"`
}

// annotations are the cluster that is addressed, and the decision with its reason, which is
// present if the decision is.
type annotations struct {
	Decision string  `json:"authorization.k8s.io/decision,omitempty"`
	Reason   *string `json:"authorization.k8s.io/reason,omitempty"`
	Cluster  string  `json:"watershed.dev/cluster,omitempty"`
	// Passed is "true" if the cluster has answered the request. Its own log has the decision.
	Passed string `json:"watershed.dev/passed-on,omitempty"`
}

// newEvent returns the event of a request. Call may be nil.
func newEvent(r *http.Request, q *replica.Request, o replica.Outcome, call *access.Call) *event {
	a := q.Attributes()
	e := &event{
		Kind: "Event", APIVersion: "audit.k8s.io/v1", Level: "Metadata", Stage: "ResponseComplete",
		RequestURI: cut(requestURI(r.URL), maxURI), Verb: cut(a.Verb, maxText), UserAgent: cut(r.UserAgent(), maxText),
		ResponseStatus: responseStatus{Code: o.Status, Reason: o.Reason},
		Received:       o.Began.UTC().Format(microTime), Reached: o.Began.Add(o.Took).UTC().Format(microTime),
	}
	switch {
	case o.Started:
		e.Stage = "ResponseStarted"
	case o.Panicked:
		e.Stage = "Panic"
		e.ResponseStatus.Code = http.StatusInternalServerError
		e.ResponseStatus.Reason = metav1.StatusReasonInternalError
	}
	if e.ResponseStatus.Code >= http.StatusBadRequest {
		e.ResponseStatus.Status = metav1.StatusFailure
	}
	// Forwarded addresses are not recorded: any client can send such a header.
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		e.SourceIPs = []string{host}
	}
	if a.IsResource {
		e.ObjectRef = &objectRef{
			Resource: cut(a.Resource, maxText), Namespace: cut(a.Namespace, maxText), Name: cut(a.Name, maxText),
			APIGroup: cut(a.Group, maxText), APIVersion: cut(a.Version, maxText),
			Subresource: cut(a.Subresource, maxText),
		}
	}
	e.annotate(q, o, call)
	e.identify(call)
	return e
}

// annotate adds the cluster, whether it has answered, and the decision.
func (e *event) annotate(q *replica.Request, o replica.Outcome, call *access.Call) {
	cluster := q.Cluster
	if q.Member != nil {
		cluster = q.Member.Name() // the request may have another name of it
	}
	decided := call != nil && call.Decision != ""
	if cluster == "" && !decided {
		return
	}
	e.Annotations = &annotations{Cluster: cut(cluster, maxText)}
	if o.Passed {
		e.Annotations.Passed = "true"
	}
	if decided {
		reason := cut(call.Reason, maxURI)
		e.Annotations.Decision, e.Annotations.Reason = call.Decision, &reason
	}
}

// identify adds the caller, and the user that the caller acts as.
func (e *event) identify(call *access.Call) {
	switch {
	case call == nil || call.User == nil:
	case call.Impersonator != nil:
		e.User = bounded(call.Impersonator)
		user := bounded(call.User)
		e.ImpersonatedUser = &user
	default:
		e.User = bounded(call.User)
	}
}

// bounded returns an identity that has at most maxUser bytes.
func bounded(u *authenticationv1.UserInfo) authenticationv1.UserInfo {
	size := len(u.Username) + len(u.UID)
	for _, group := range u.Groups {
		size += len(group) + 3
	}
	for key, values := range u.Extra {
		size += len(key) + 6
		for _, value := range values {
			size += len(value) + 3
		}
	}
	if size <= maxUser {
		return *u
	}
	small := authenticationv1.UserInfo{Username: cut(u.Username, maxText), UID: cut(u.UID, maxText)}
	size = 0
	for _, group := range u.Groups {
		if size += len(group) + 3; size > maxGroups {
			break
		}
		small.Groups = append(small.Groups, group)
	}
	return small
}

// cut returns at most the first n bytes of a text, without half of a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.ToValidUTF8(text[:n], "\uFFFD")
}
