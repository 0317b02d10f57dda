// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package oracle

import (
	"fmt"
	"math/rand/v2"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica"
)

// The words are few, so that rules and requests often meet. Some look like wildcards and are
// none, and some are not valid in the API.
var (
	namespaces = []string{"ns1", "ns2", "ns3"}
	accounts   = []string{"sa1", "sa2"}
	userNames  = []string{
		"alice", "system:serviceaccount:ns1:sa1", "bob", "system:serviceaccount:ns2:sa1", "carol", "system:anonymous",
		"system:serviceaccount:ns2:sa2", "system:serviceaccount:ns1:sa1:x", "system:serviceaccount::sa1", "g1",
		`quo"ted`, "",
	}
	groupNames = []string{
		"g1", "g2", "g3", "alice", "system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ns1",
		"system:masters", "system:nodes", "",
	}
	roleNames    = []string{"r0", "r1", "r2", "r3", "r4", "r5", `r"6`}
	bindingNames = []string{"b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"}
	verbs        = []string{"get", "list", "watch", "create", "deletecollection", "impersonate", "GET", ""}
	apiGroups    = []string{"", "apps", "rbac.authorization.k8s.io", "Apps"}
	resources    = []string{"pods", "deployments", "namespaces", "nodes", "", "pods/log"}
	subresources = []string{"log", "status", "scale", "log/x", "*"}
	patterns     = []string{
		"pods", "pods/log", "*", "*/log", "deployments", "namespaces", "nodes", "pods/status", "deployments/scale",
		"*/status", "*/scale", "pods/*", "*/*", "", "*/", "/log", "pods/log/x", "**",
	}
	objectNames = []string{"a", "b", "c", "*"}
	paths       = []string{
		"/healthz", "/healthz/ping", "/version", "/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/metrics", "/", "",
		"/openapi/v2", "/*", "*",
	}
	pathPatterns = []string{
		"/healthz", "/healthz/*", "*", "/version", "/api", "/api*", "/api/*", "/apis*", "/metrics", "/*", "/", "",
		"/api**", "/openapi/*", "*/healthz", "/a*i",
	}
)

// generator makes random objects and requests.
type generator struct{ *rand.Rand }

// one returns a word. Those at the beginning are more likely, so that about a sixth of the
// requests is allowed.
func (w generator) one(words []string) string {
	return words[min(w.IntN(len(words)), w.IntN(len(words)), w.IntN(len(words)))]
}

func (w generator) chance(percent int) bool { return w.IntN(100) < percent }

// some returns up to limit words, which can be equal.
func (w generator) some(limit int, words []string) []string {
	var list []string
	for range w.IntN(limit + 1) {
		list = append(list, w.one(words))
	}
	return list
}

func (w generator) rule() rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: w.some(4, verbs)}
	if w.chance(35) {
		r.Verbs = append(r.Verbs, "*")
	}
	if w.chance(75) {
		r.APIGroups = w.some(2, apiGroups)
		if w.chance(40) {
			r.APIGroups = append(r.APIGroups, "*")
		}
		r.Resources = w.some(5, patterns)
		if w.chance(25) {
			r.ResourceNames = w.some(2, append(objectNames[:len(objectNames):len(objectNames)], ""))
		}
	}
	if w.chance(35) {
		r.NonResourceURLs = w.some(3, pathPatterns)
	}
	return r
}

func (w generator) rules() []rbacv1.PolicyRule {
	var list []rbacv1.PolicyRule
	for range w.IntN(7) {
		list = append(list, w.rule())
	}
	return list
}

func (w generator) subjects() []rbacv1.Subject {
	var list []rbacv1.Subject
	for range w.IntN(5) {
		s := rbacv1.Subject{
			Kind: []string{
				"User", "Group", "ServiceAccount", "User", "Group", "ServiceAccount", "user", "Robot", "",
			}[w.IntN(9)],
		}
		switch s.Kind {
		case "User":
			s.Name = w.one(userNames)
		case "Group":
			s.Name = w.one(groupNames)
		default:
			s.Name = w.one(accounts)
		}
		if w.chance(50) {
			s.APIGroup = w.one(apiGroups)
		}
		if s.Kind == "ServiceAccount" && w.chance(60) || w.chance(10) {
			s.Namespace = w.one(namespaces)
		}
		list = append(list, s)
	}
	return list
}

func (w generator) roleRef() rbacv1.RoleRef {
	kind := "ClusterRole"
	switch n := w.IntN(20); {
	case n < 8:
		kind = "Role"
	case n == 8:
		kind = []string{"", "role", "Other"}[w.IntN(3)]
	}
	return rbacv1.RoleRef{APIGroup: w.one(apiGroups), Kind: kind, Name: w.one(roleNames)}
}

func (w generator) meta(namespaced bool, names []string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: w.one(names), ResourceVersion: fmt.Sprint(w.Uint32())}
	if namespaced {
		m.Namespace = w.one(namespaces)
	}
	return m
}

// clusterRole returns a ClusterRole. Rules of an aggregated one are those that it is stored
// with, whatever its selectors match.
func (w generator) clusterRole() *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: w.meta(false, roleNames), Rules: w.rules()}
	if w.chance(20) {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	}
	return r
}

func (w generator) user() *authenticationv1.UserInfo {
	return &authenticationv1.UserInfo{Username: w.one(userNames), Groups: w.some(4, groupNames)}
}

func (w generator) attributes() replica.Attributes {
	a := replica.Attributes{Verb: w.one(verbs)}
	if w.chance(5) {
		a.Verb = "*"
	}
	if w.chance(75) {
		a.IsResource, a.Group, a.Version, a.Resource = true, w.one(apiGroups), "v1", w.one(resources)
		if w.chance(40) {
			a.Subresource = w.one(subresources)
		}
		if w.chance(60) {
			a.Name = w.one(objectNames)
		}
	} else {
		a.Path = w.one(paths)
	}
	if w.chance(60) {
		a.Namespace = w.one(namespaces)
	}
	return a
}
