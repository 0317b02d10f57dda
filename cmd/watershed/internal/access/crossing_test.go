// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"net/http"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// members returns the members of a fleet with clusters of these names, in their order.
func members(t *testing.T, names ...string) []*fleet.Member {
	t.Helper()
	f := newFleet(t, names...)
	expect.Soon(t, "the fleet has its members", func() bool { return len(f.Members()) == len(names) })
	return f.Members()
}

// Only what the operator has listed keeps its name in another cluster, and nothing of
// Kubernetes itself ever does.
func TestCross(t *testing.T) {
	all := members(t, "home", "other", "strange")
	home, other, strange := all[0], all[1], all[2]
	x := Crossing{
		Home:    "home",
		Users:   []string{"oidc:*", "*@example.com"},
		Groups:  []string{"oidc:*"},
		Members: []string{"home", "oth*"},
	}
	user := func(name string, groups ...string) *caller {
		c := &caller{at: home}
		c.UserInfo = authenticationv1.UserInfo{
			Username: name, UID: "uid", Groups: groups, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}
		return c
	}
	for _, test := range []struct {
		name string
		who  *caller
		to   *fleet.Member
		want *authenticationv1.UserInfo // nil: does not cross
	}{
		{
			"prefix", user("oidc:jane", "oidc:dev", "system:masters", "kubeadm:cluster-admins", "dev"), other,
			&authenticationv1.UserInfo{
				Username: "oidc:jane",
				Groups:   []string{"oidc:dev", authenticated},
			},
		},
		{
			"suffix", user("jane@example.com"), other, &authenticationv1.UserInfo{
				Username: "jane@example.com",
				Groups:   []string{authenticated},
			},
		},
		{"not listed", user("jane"), other, nil},
		{"no trust", user("oidc:jane"), strange, nil},
		{"system", user("system:admin", "oidc:dev"), other, nil},
		{"like an account", user("watershed:home:ci:bot@example.com"), other, nil},
		{"empty", user(""), other, nil},
		{
			"service account", user("system:serviceaccount:ci:bot", "system:serviceaccounts"), other,
			&authenticationv1.UserInfo{
				Username: "watershed:home:ci:bot",
				Groups:   []string{authenticated},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := x.cross(test.who, test.to)
			if test.want == nil {
				if got != nil {
					t.Errorf("crosses as %v", got.UserInfo)
				}
				return
			}
			if got == nil {
				t.Fatal("does not cross")
			}
			expect.Equal(t, got.UserInfo, *test.want)
		})
	}
	t.Run("at home", func(t *testing.T) {
		who := user("system:serviceaccount:ci:bot", "system:serviceaccounts")
		if x.cross(who, home) != who {
			t.Error("an identity changes in its own cluster")
		}
	})
	t.Run("OpenID Connect", func(t *testing.T) {
		who := &caller{
			Identity: authn.Identity{
				UserInfo: authenticationv1.UserInfo{
					Username: "sso:jane",
					Groups:   []string{"sso:dev", "system:masters"},
				},
			},
		}
		expect.Equal(t, x.cross(who, other).UserInfo, authenticationv1.UserInfo{
			Username: "sso:jane",
			Groups:   []string{"sso:dev", authenticated},
		})
		who.Username = "system:serviceaccount:kube-system:default"
		if got := x.cross(who, other); got != nil {
			t.Errorf("crosses as %v", got.UserInfo)
		}
	})
}

func TestCrossing_refusesEveryone(t *testing.T) {
	for _, pattern := range []string{"*", "", "**", "a*b*", "system:*", "system:serviceaccount:*", "watershed:*"} {
		for _, x := range []Crossing{{Users: []string{pattern}}, {Groups: []string{pattern}}} {
			if x.Validate() == nil {
				t.Errorf("the pattern %q is accepted", pattern)
			}
		}
	}
	if err := (&Crossing{Users: []string{"oidc:*", "jane"}}).Validate(); err != nil {
		t.Error(err)
	}
}

// Headers become the identity and the rights that kube-apiserver derives from them.
func TestImpersonated(t *testing.T) {
	right := func(group, resource, sub, namespace, name string) replica.Attributes {
		a := replica.Attributes{
			Verb:        "impersonate",
			IsResource:  true,
			Group:       group,
			Resource:    resource,
			Subresource: sub,
			Namespace:   namespace,
			Name:        name,
		}
		if group != "" {
			a.Version = "v1"
		}
		return a
	}
	for _, test := range []struct {
		name   string
		header http.Header
		user   authenticationv1.UserInfo
		rights []replica.Attributes
	}{
		{
			"user",
			http.Header{"Impersonate-User": {"jane"}},
			authenticationv1.UserInfo{Username: "jane", Groups: []string{authenticated}},
			[]replica.Attributes{right("", "users", "", "", "jane")},
		},
		{
			"groups", http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"a", "b"}},
			authenticationv1.UserInfo{Username: "jane", Groups: []string{"a", "b", authenticated}},
			[]replica.Attributes{
				right("", "users", "", "", "jane"), right("", "groups", "", "", "a"), right("", "groups", "", "", "b"),
			},
		},
		{
			"account", http.Header{"Impersonate-User": {"system:serviceaccount:ns:bot"}},
			authenticationv1.UserInfo{
				Username: "system:serviceaccount:ns:bot",
				Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:ns", authenticated},
			},
			[]replica.Attributes{right("", "serviceaccounts", "", "ns", "bot")},
		},
		{
			"everything", http.Header{
				"Impersonate-User":                      {"jane"},
				"Impersonate-Uid":                       {"7"},
				"Impersonate-Extra-Example.com%2fscope": {"x", "y"},
			},
			authenticationv1.UserInfo{
				Username: "jane",
				UID:      "7",
				Groups:   []string{authenticated},
				Extra:    map[string]authenticationv1.ExtraValue{"example.com/scope": {"x", "y"}},
			},
			[]replica.Attributes{
				right("", "users", "", "", "jane"),
				right("authentication.k8s.io", "userextras", "example.com/scope", "", "x"),
				right("authentication.k8s.io", "userextras", "example.com/scope", "", "y"),
				right("authentication.k8s.io", "uids", "", "", "7"),
			},
		},
		{
			"anonymous",
			http.Header{"Impersonate-User": {"system:anonymous"}},
			authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{unauthenticated}},
			[]replica.Attributes{right("", "users", "", "", "system:anonymous")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			user, rights, err := impersonated(test.header)
			if err != nil {
				t.Fatal(err)
			}
			expect.Equal(t, user, test.user)
			expect.Equal(t, rights, test.rights)
		})
	}
	for _, header := range []http.Header{
		{"Impersonate-Group": {"system:masters"}},
		{"Impersonate-Uid": {"7"}},
		{"Impersonate-Extra-A": {"b"}},
	} {
		if _, _, err := impersonated(header); err == nil {
			t.Errorf("%v is accepted without a user", header)
		}
		if !impersonates(&http.Request{Header: header}) {
			t.Errorf("%v is not noticed", header)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "a", true}, {"a*", "abc", true}, {"*c", "abc", true},
		{"a*c", "abc", true}, {"ab*bc", "abc", false}, {"a*", "ba", false},
	} {
		if got := Matches([]string{"none", test.pattern}, test.name); got != test.want {
			t.Errorf("%q, %q: %v", test.pattern, test.name, got)
		}
	}
	if Matches(nil, "a") || slices.Contains([]string(nil), "a") {
		t.Error("no pattern matches")
	}
}
