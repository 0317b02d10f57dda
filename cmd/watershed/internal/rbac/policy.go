// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package rbac

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Policy holds the RBAC objects of one cluster. All methods are safe for concurrent use.
//
// Besides the rules and subjects, which are those of the objects, a role costs about 100
// bytes and a binding about 190. Each of its subjects costs 8 bytes, or about 90 if
// the subject has no other binding. A change costs O(subjects of the object), and for each of
// them a search among the bindings of the subject and the move of 8 bytes for each that follows.
type Policy struct {
	mu           sync.RWMutex
	version      uint64
	changed      time.Time
	roles        map[objectKey]*role
	clusterRoles map[string]*role
	// bindings has ClusterRoleBindings too. Their namespace is "".
	bindings map[objectKey]*binding
	// users is indexed by user name. A service account is the user
	// system:serviceaccount:<namespace>:<name>.
	users, groups map[string]grants
}

// objectKey identifies an object within its kind.
type objectKey struct{ namespace, name string }

// role is a Role or a ClusterRole. It also represents one that does not exist while bindings
// refer to it, so that a binding never has to look it up.
type role struct {
	rules    []rbacv1.PolicyRule
	exists   bool
	bindings int // the number of bindings that refer to it
}

// binding is a RoleBinding, or a ClusterRoleBinding if its namespace is "".
type binding struct {
	objectKey
	ref      rbacv1.RoleRef
	role     *role // nil if ref has an unknown kind
	subjects []rbacv1.Subject
}

// grants are the bindings that have one subject, sorted by namespace and name.
type grants []*binding

// New returns an empty policy, which denies everything.
func New() *Policy {
	return &Policy{
		roles:        map[objectKey]*role{},
		clusterRoles: map[string]*role{},
		bindings:     map[objectKey]*binding{},
		users:        map[string]grants{},
		groups:       map[string]grants{},
	}
}

// Version returns a number that grows with each change that can alter a decision.
func (p *Policy) Version() uint64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.version
}

// Changed returns when the last of these changes was made, or the zero time.
func (p *Policy) Changed() time.Time {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.changed
}

// Size returns the number of roles and of bindings of both kinds.
func (p *Policy) Size() (roles, bindings int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, r := range p.roles {
		if r.exists {
			roles++
		}
	}
	for _, r := range p.clusterRoles {
		if r.exists {
			roles++
		}
	}
	return roles, len(p.bindings)
}

// SetRole adds or replaces a Role. It reports whether a decision can have changed: it
// returns false if the rules are the same or no binding refers to the role.
func (p *Policy) SetRole(r *rbacv1.Role) bool {
	return setRole(p, p.roles, objectKey{r.Namespace, r.Name}, r.Rules)
}

// SetClusterRole adds or replaces a ClusterRole and reports whether a decision can have
// changed.
func (p *Policy) SetClusterRole(r *rbacv1.ClusterRole) bool {
	return setRole(p, p.clusterRoles, r.Name, r.Rules)
}

// DeleteRole removes a Role and reports whether a decision can have changed.
func (p *Policy) DeleteRole(namespace, name string) bool {
	return deleteRole(p, p.roles, objectKey{namespace, name})
}

// DeleteClusterRole removes a ClusterRole and reports whether a decision can have changed.
func (p *Policy) DeleteClusterRole(name string) bool {
	return deleteRole(p, p.clusterRoles, name)
}

// SetRoleBinding adds or replaces a RoleBinding and reports whether a decision can have
// changed.
func (p *Policy) SetRoleBinding(b *rbacv1.RoleBinding) bool {
	return p.setBinding(&binding{objectKey: objectKey{b.Namespace, b.Name}, ref: b.RoleRef, subjects: b.Subjects})
}

// SetClusterRoleBinding adds or replaces a ClusterRoleBinding and reports whether a decision
// can have changed.
func (p *Policy) SetClusterRoleBinding(b *rbacv1.ClusterRoleBinding) bool {
	return p.setBinding(&binding{objectKey: objectKey{"", b.Name}, ref: b.RoleRef, subjects: b.Subjects})
}

// DeleteRoleBinding removes a RoleBinding and reports whether a decision can have changed.
func (p *Policy) DeleteRoleBinding(namespace, name string) bool {
	return p.deleteBinding(objectKey{namespace, name})
}

// DeleteClusterRoleBinding removes a ClusterRoleBinding and reports whether a decision can
// have changed.
func (p *Policy) DeleteClusterRoleBinding(name string) bool {
	return p.deleteBinding(objectKey{"", name})
}

func setRole[K comparable](p *Policy, roles map[K]*role, key K, rules []rbacv1.PolicyRule) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := roles[key]
	if r == nil {
		r = &role{}
		roles[key] = r
	}
	changed := r.bindings > 0 && (!r.exists || !slices.EqualFunc(r.rules, rules, sameRule))
	r.rules, r.exists = rules, true
	p.changedLocked(changed)
	return changed
}

func deleteRole[K comparable](p *Policy, roles map[K]*role, key K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := roles[key]
	if r == nil || !r.exists {
		return false
	}
	r.rules, r.exists = nil, false
	if r.bindings == 0 {
		delete(roles, key)
	}
	p.changedLocked(r.bindings > 0)
	return r.bindings > 0
}

func (p *Policy) setBinding(b *binding) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.bindings[b.objectKey]; old != nil {
		if old.ref == b.ref && slices.Equal(old.subjects, b.subjects) {
			return false
		}
		p.removeLocked(old)
	}
	p.addLocked(b)
	p.changedLocked(true)
	return true
}

func (p *Policy) deleteBinding(key objectKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bindings[key]
	if b == nil {
		return false
	}
	p.removeLocked(b)
	p.changedLocked(true)
	return true
}

func (p *Policy) changedLocked(changed bool) {
	if changed {
		p.version++
		p.changed = time.Now()
	}
}

// addLocked adds a binding to the indexes.
func (p *Policy) addLocked(b *binding) {
	p.bindings[b.objectKey] = b
	switch b.ref.Kind {
	case roleKind:
		// A Role that a ClusterRoleBinding refers to has no namespace and cannot exist.
		b.role = refer(p.roles, objectKey{b.namespace, b.ref.Name})
	case clusterRoleKind:
		b.role = refer(p.clusterRoles, b.ref.Name)
	}
	for i := range b.subjects {
		if index, name := p.indexOf(&b.subjects[i], b.namespace); index != nil {
			index[name] = index[name].with(b)
		}
	}
}

// removeLocked removes a binding from the indexes.
func (p *Policy) removeLocked(b *binding) {
	delete(p.bindings, b.objectKey)
	switch b.ref.Kind {
	case roleKind:
		release(p.roles, objectKey{b.namespace, b.ref.Name})
	case clusterRoleKind:
		release(p.clusterRoles, b.ref.Name)
	}
	for i := range b.subjects {
		if index, name := p.indexOf(&b.subjects[i], b.namespace); index != nil {
			if g := index[name].without(b); len(g) > 0 {
				index[name] = g
			} else {
				delete(index, name)
			}
		}
	}
}

// Kinds that a binding can refer to.
const (
	roleKind        = "Role"
	clusterRoleKind = "ClusterRole"
)

// refer returns a role and counts one more binding of it.
func refer[K comparable](roles map[K]*role, key K) *role {
	r := roles[key]
	if r == nil {
		r = &role{}
		roles[key] = r
	}
	r.bindings++
	return r
}

// release counts one binding less, and drops a role that neither exists nor is referred to.
func release[K comparable](roles map[K]*role, key K) {
	r := roles[key]
	if r.bindings--; r.bindings == 0 && !r.exists {
		delete(roles, key)
	}
}

// indexOf returns the index for a subject of a binding in a namespace, and its name there. It
// returns a nil index if the subject cannot match a user.
func (p *Policy) indexOf(s *rbacv1.Subject, namespace string) (map[string]grants, string) {
	switch s.Kind {
	case rbacv1.UserKind:
		return p.users, s.Name
	case rbacv1.GroupKind:
		return p.groups, s.Name
	case rbacv1.ServiceAccountKind:
		if name, ok := serviceAccountUser(s, namespace); ok {
			return p.users, name
		}
	}
	return nil, ""
}

// serviceAccountUser returns the user name of a service account. Its namespace defaults to
// that of the binding, and a service account without one does not match anything.
func serviceAccountUser(s *rbacv1.Subject, namespace string) (string, bool) {
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	if namespace == "" {
		return "", false
	}
	return serviceAccountPrefix + namespace + ":" + s.Name, true
}

const serviceAccountPrefix = "system:serviceaccount:"

// with adds a binding unless it is there, because a binding can have a subject twice.
func (g grants) with(b *binding) grants {
	if i, found := slices.BinarySearchFunc(g, b.objectKey, compareKey); !found {
		return slices.Insert(g, i, b)
	}
	return g
}

// without removes a binding if it is there.
func (g grants) without(b *binding) grants {
	if i, found := slices.BinarySearchFunc(g, b.objectKey, compareKey); found {
		return slices.Delete(g, i, i+1)
	}
	return g
}

// in returns the bindings in a namespace, or the ClusterRoleBindings for "".
func (g grants) in(namespace string) grants {
	first := 0
	if namespace != "" {
		first, _ = slices.BinarySearchFunc(g, objectKey{namespace: namespace}, compareKey)
	}
	end := first
	for end < len(g) && g[end].namespace == namespace {
		end++
	}
	return g[first:end]
}

func compareKey(b *binding, key objectKey) int {
	return cmp.Or(strings.Compare(b.namespace, key.namespace), strings.Compare(b.name, key.name))
}

// sameRule reports whether two rules are written in the same way.
func sameRule(a, b rbacv1.PolicyRule) bool {
	return slices.Equal(a.Verbs, b.Verbs) && slices.Equal(a.APIGroups, b.APIGroups) &&
		slices.Equal(a.Resources, b.Resources) &&
		slices.Equal(a.ResourceNames, b.ResourceNames) && slices.Equal(a.NonResourceURLs, b.NonResourceURLs)
}
