// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package rbac

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/watershed-project/watershed/replica"
)

// expectedGroups is how many groups a user has before a decision allocates memory for them.
const expectedGroups = 15

// Authorize reports whether the policy allows a request, and why. The reason names the
// binding that allows it. The reason of a denial is "", or names the roles that bindings
// of the user refer to and that do not exist.
//
// It costs one lookup for the user and for each group, and then O(rules of the bindings of
// these subjects), independent of the other objects. Bindings are visited in the order of
// their names, those of the cluster first. kube-apiserver visits them in random order, so it
// can name another binding that allows the request too.
func (p *Policy) Authorize(user *authenticationv1.UserInfo, a replica.Attributes) (allowed bool, reason string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var buffer [expectedGroups + 1]grants
	held := p.heldLocked(buffer[:0], user)
	var missing map[string]bool
	find := func(bindings grants) *binding {
		for _, b := range bindings {
			if b.role == nil || !b.role.exists {
				if missing == nil {
					missing = map[string]bool{}
				}
				missing[b.problem()] = true
				continue
			}
			for i := range b.role.rules {
				if ruleAllows(&b.role.rules[i], &a) {
					return b
				}
			}
		}
		return nil
	}
	for _, g := range held {
		if b := find(g.in("")); b != nil {
			return true, b.reason(user)
		}
	}
	if a.Namespace != "" {
		for _, g := range held {
			if b := find(g.in(a.Namespace)); b != nil {
				return true, b.reason(user)
			}
		}
	}
	if len(missing) == 0 {
		return false, ""
	}
	return false, "RBAC: " + joinProblems(missing)
}

// Rules returns the rules that apply to a user in a namespace, for a
// SelfSubjectRulesReview. EvaluationError names roles that do not exist. Incomplete is false:
// the caller sets it if the cluster has other authorizers. The rules belong to the policy and
// must not be modified.
func (p *Policy) Rules(user *authenticationv1.UserInfo, namespace string) authorizationv1.SubjectRulesReviewStatus {
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{},
		NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	held := p.heldLocked(nil, user)
	missing := map[string]bool{}
	seen := map[*binding]bool{}
	visit := func(bindings grants) {
		for _, b := range bindings {
			switch {
			case seen[b]:
			case b.role == nil || !b.role.exists:
				missing[b.problem()] = true
			default:
				appendRules(&status, b.role.rules)
			}
			seen[b] = true
		}
	}
	for _, g := range held {
		visit(g.in(""))
	}
	if namespace != "" {
		for _, g := range held {
			visit(g.in(namespace))
		}
	}
	status.EvaluationError = joinProblems(missing)
	return status
}

func appendRules(status *authorizationv1.SubjectRulesReviewStatus, rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		if len(r.Resources) > 0 {
			status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs,
			})
		}
	}
}

// heldLocked appends the grants of a user and of its groups.
func (p *Policy) heldLocked(held []grants, user *authenticationv1.UserInfo) []grants {
	if g := p.users[user.Username]; g != nil {
		held = append(held, g)
	}
	for _, group := range user.Groups {
		if g := p.groups[group]; g != nil {
			held = append(held, g)
		}
	}
	return held
}

// reason returns why a binding allows a request of a user. It names the first subject that
// matches.
func (b *binding) reason(user *authenticationv1.UserInfo) string {
	text := make([]byte, 0, 160)
	if b.namespace == "" {
		text = append(text, "RBAC: allowed by ClusterRoleBinding "...)
		text = strconv.AppendQuote(text, b.name)
	} else {
		text = append(text, "RBAC: allowed by RoleBinding "...)
		text = strconv.AppendQuote(text, b.name+"/"+b.namespace)
	}
	text = append(append(append(text, " of "...), b.ref.Kind...), ' ')
	text = strconv.AppendQuote(text, b.ref.Name)
	for i := range b.subjects {
		s := &b.subjects[i]
		if !b.matches(s, user) {
			continue
		}
		text = append(append(append(text, " to "...), s.Kind...), ' ')
		name := s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			namespace := s.Namespace
			if namespace == "" {
				namespace = b.namespace
			}
			name += "/" + namespace
		}
		text = strconv.AppendQuote(text, name)
		break
	}
	return string(text)
}

// matches reports whether a subject of the binding is the user or one of its groups.
func (b *binding) matches(s *rbacv1.Subject, user *authenticationv1.UserInfo) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return s.Name == user.Username
	case rbacv1.GroupKind:
		return slices.Contains(user.Groups, s.Name)
	case rbacv1.ServiceAccountKind:
		name, ok := serviceAccountUser(s, b.namespace)
		return ok && name == user.Username
	}
	return false
}

// problem returns why the role of a binding cannot be evaluated.
func (b *binding) problem() string {
	switch b.ref.Kind {
	case roleKind, clusterRoleKind:
		return strings.ToLower(b.ref.Kind) + "." + rbacv1.GroupName + " " + strconv.Quote(b.ref.Name) + " not found"
	}
	return "unsupported role reference kind: " + strconv.Quote(b.ref.Kind)
}

// joinProblems returns problems as one text, in the form of an aggregate error, sorted.
func joinProblems(problems map[string]bool) string {
	switch sorted := slices.Sorted(maps.Keys(problems)); len(sorted) {
	case 0:
		return ""
	case 1:
		return sorted[0]
	default:
		return "[" + strings.Join(sorted, ", ") + "]"
	}
}
