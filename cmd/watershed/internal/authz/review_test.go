// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

func TestSpecOf(t *testing.T) {
	user := &authenticationv1.UserInfo{
		Username: "alice", UID: "7", Groups: []string{"z", "a"},
		Extra: map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/credential-id": {"JTI=1"},
			"scopes": {"b", "a"},
		},
	}
	list := replica.Attributes{
		Verb: "list", IsResource: true, Group: "apps", Version: "v1", Resource: "deployments", Subresource: "status",
		Namespace: "a", Name: "x",
		FieldSelector: "metadata.name==x,spec.nodeName!=n,=nothing",
		LabelSelector: "app in (c,b),tier!=web,env,!old,size>3",
	}
	expect.Equal(t, specOf(user, &list), authorizationv1.SubjectAccessReviewSpec{
		User: "alice", UID: "7", Groups: []string{"z", "a"},
		Extra: map[string]authorizationv1.ExtraValue{
			"authentication.kubernetes.io/credential-id": {"JTI=1"},
			"scopes": {"b", "a"},
		},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "status", Namespace: "a",
			Name: "x",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "metadata.name", Operator: "In", Values: []string{"x"}}, {
					Key: "spec.nodeName", Operator: "NotIn", Values: []string{"n"},
				},
			}},
			LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: "In", Values: []string{"b", "c"}},
				{Key: "env", Operator: "Exists"},
				{Key: "old", Operator: "DoesNotExist"},
				{Key: "tier", Operator: "NotIn", Values: []string{"web"}},
			}},
		},
	})

	list.FieldSelector, list.LabelSelector = "a=b,broken", "a in ("
	spec := specOf(user, &list).ResourceAttributes
	if spec.FieldSelector != nil || spec.LabelSelector != nil {
		t.Errorf("selectors that cannot be parsed: %v %v", spec.FieldSelector, spec.LabelSelector)
	}

	expect.Equal(t, specOf(&authenticationv1.UserInfo{Username: "bob"},
		&replica.Attributes{Verb: "get", Path: "/version"}), authorizationv1.SubjectAccessReviewSpec{
		User: "bob", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/version"},
	})
}

// TestKeyOf checks that everything that is sent is a part of the key.
func TestKeyOf(t *testing.T) {
	user := authenticationv1.UserInfo{
		Username: "alice", UID: "7", Groups: []string{"a", "b"},
		Extra: map[string]authenticationv1.ExtraValue{"k": {"v", "w"}, "l": {}},
	}
	a := replica.Attributes{
		Verb: "list", IsResource: true, Group: "apps", Version: "v1", Resource: "deployments", Subresource: "status",
		Namespace: "a", Name: "x",
		FieldSelector: "a=b", LabelSelector: "c=d",
	}
	keys := map[reviewKey]string{keyOf(&user, &a): "the request", keyOf(nil, &a): "nobody's"}
	distinct := func(what string, key reviewKey) {
		t.Helper()
		if other, ok := keys[key]; ok {
			t.Errorf("%s has the key of %s", what, other)
		}
		keys[key] = what
	}
	for i := range reflect.TypeFor[replica.Attributes]().NumField() {
		other := a
		field := reflect.ValueOf(&other).Elem().Field(i)
		name := reflect.TypeFor[replica.Attributes]().Field(i).Name
		switch field.Kind() {
		case reflect.String:
			if name == "Path" {
				continue // the path of a resource is not sent
			}
			field.SetString(field.String() + "!")
		case reflect.Bool:
			field.SetBool(!field.Bool())
		default:
			t.Fatalf("attribute %s is a %s: is it a part of the key?", name, field.Kind())
		}
		distinct(name, keyOf(&user, &other))
	}
	path := replica.Attributes{Verb: "list", Path: "/a"}
	distinct("a path", keyOf(&user, &path))
	path.Path = "/b"
	distinct("another path", keyOf(&user, &path))

	for what, change := range map[string]func(u *authenticationv1.UserInfo){
		"name":          func(u *authenticationv1.UserInfo) { u.Username = "bob" },
		"uid":           func(u *authenticationv1.UserInfo) { u.UID = "8" },
		"a group less":  func(u *authenticationv1.UserInfo) { u.Groups = []string{"a"} },
		"joined groups": func(u *authenticationv1.UserInfo) { u.Groups = []string{"ab"} },
		"no extra":      func(u *authenticationv1.UserInfo) { u.Extra = nil },
		"another value": func(u *authenticationv1.UserInfo) {
			u.Extra = map[string]authenticationv1.ExtraValue{"k": {"v", "x"}, "l": {}}
		},
		"a value moved": func(u *authenticationv1.UserInfo) {
			u.Extra = map[string]authenticationv1.ExtraValue{"k": {"v"}, "l": {"w"}}
		},
		"the order of extra": func(u *authenticationv1.UserInfo) {
			u.Extra = map[string]authenticationv1.ExtraValue{"k": {"w", "v"}, "l": {}}
		},
	} {
		other := user
		change(&other)
		distinct(what, keyOf(&other, &a))
	}

	same := user
	same.Groups = slices.Clone(user.Groups)
	slices.Reverse(same.Groups)
	expect.Equal(t, keyOf(&same, &a), keyOf(&user, &a))
	expect.Equal(t, fmt.Sprint(same.Groups), "[b a]") // the caller's groups are not sorted
}

func TestForbidden(t *testing.T) {
	status := statusOf(t, Forbidden(&authenticationv1.UserInfo{Username: `<a&"b">`},
		replica.Attributes{Verb: "get", Path: "/metrics"}, "RBAC: <x>"))
	expect.Equal(t, status, metav1.Status{
		Status: "Failure", Code: 403, Reason: "Forbidden", Details: &metav1.StatusDetails{},
		Message: `forbidden: User "&lt;a&amp;\"b\"&gt;" cannot get path "/metrics": RBAC: <x>`,
	})
	status = statusOf(t, Forbidden(&authenticationv1.UserInfo{Username: "alice"}, replica.Attributes{
		Verb: "get", IsResource: true, Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale",
		Namespace: "a", Name: "x",
	}, ""))
	expect.Equal(t, status, metav1.Status{
		Status: "Failure", Code: 403, Reason: "Forbidden",
		Details: &metav1.StatusDetails{Name: "x", Group: "apps", Kind: "deployments"},
		Message: `deployments.apps "x" is forbidden: User "alice" cannot get resource "deployments/scale" in API group "apps" in the namespace "a"`,
	})
}
