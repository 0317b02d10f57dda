// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/replica"
)

const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
)

// impersonates reports whether a request is to be decided for another user than its caller.
func impersonates(r *http.Request) bool {
	const prefix = "impersonate-"
	for name := range r.Header {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// impersonate replaces the caller by the user that the request names, if the addressed
// cluster allows it for the user, each group, the UID and each extra value, as kube-apiserver
// does. The constrained impersonation of newer servers is not provided: a caller that has
// only that right is refused.
func (g *guards) impersonate(r *http.Request, q *replica.Request, call *Call) error {
	if q.Member == nil {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: "impersonation is forbidden: it needs one cluster that decides about it; use /clusters/NAME",
		}}
	}
	user, wanted, err := impersonated(r.Header)
	if err != nil {
		return err
	}
	at, err := g.of(q.Member)
	if err != nil {
		return err
	}
	who := call.caller
	for _, a := range wanted {
		d, err := at.decide(r.Context(), who, a)
		if err != nil {
			return err
		}
		if !d.Allowed {
			return at.forbidden(r.Context(), who, a, d.Reason)
		}
	}
	call.Impersonator = at.userOf(r.Context(), who)
	call.caller = &caller{
		Identity: authn.Identity{UserInfo: user, Expires: who.Expires, Method: who.Method},
		at:       q.Member, impersonator: who, impersonation: wanted,
	}
	call.User = &call.caller.UserInfo
	return nil
}

// impersonated returns the user that the headers of a request name, and the rights that the
// caller needs for it.
func impersonated(h http.Header) (user authenticationv1.UserInfo, wanted []replica.Attributes, err error) {
	want := func(group, version, resource, subresource, namespace, name string) {
		wanted = append(wanted, replica.Attributes{
			Verb: "impersonate", IsResource: true, Group: group, Version: version, Resource: resource,
			Subresource: subresource, Namespace: namespace, Name: name,
		})
	}
	user.Username = h.Get(authenticationv1.ImpersonateUserHeader)
	groups := h.Values(authenticationv1.ImpersonateGroupHeader)
	user.Groups = slices.Clone(groups)
	if account, ok := strings.CutPrefix(user.Username, accountPrefix); ok && strings.Count(account, ":") == 1 {
		namespace, name, _ := strings.Cut(account, ":")
		want("", "", "serviceaccounts", "", namespace, name)
		if len(groups) == 0 {
			user.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
		}
	} else if user.Username != "" {
		want("", "", "users", "", "", user.Username)
	}
	for _, group := range groups {
		want("", "", "groups", "", "", group)
	}
	const prefix = authenticationv1.ImpersonateUserExtraHeaderPrefix
	for _, header := range slices.Sorted(maps.Keys(h)) {
		if !strings.HasPrefix(header, prefix) {
			continue
		}
		key := strings.ToLower(header[len(prefix):])
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		for _, value := range h[header] {
			want("authentication.k8s.io", "v1", "userextras", key, "", value)
		}
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = append(user.Extra[key], h[header]...)
	}
	if user.UID = h.Get(authenticationv1.ImpersonateUIDHeader); user.UID != "" {
		want("authentication.k8s.io", "v1", "uids", "", "", user.UID)
	}
	if user.Username == "" {
		return user, nil, apierrors.NewBadRequest(
			fmt.Sprintf("requested %d rights of another user without the header %s", len(wanted),
				authenticationv1.ImpersonateUserHeader),
		)
	}
	everyone := authenticated
	if user.Username == anonymous {
		everyone = unauthenticated
	}
	if !slices.Contains(user.Groups, authenticated) && !slices.Contains(user.Groups, unauthenticated) ||
		user.Username == anonymous && !slices.Contains(user.Groups, unauthenticated) {
		user.Groups = append(user.Groups, everyone)
	}
	return user, wanted, nil
}
