// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package rbac

import (
	"fmt"
	"io"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/watershed-project/watershed/kube"
)

// The roles that every cluster has, and the namespace of the second one.
const (
	delegatorRole   = "system:auth-delegator"
	authorityRole   = "extension-apiserver-authentication-reader"
	systemNamespace = "kube-system"
)

// documentPaths are the paths of discovery, OpenAPI and the version. Most clusters allow them
// for all users, by the ClusterRole system:discovery.
var documentPaths = []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi/*", "/version"}

// requiredRights are the rights that serve needs in one cluster.
type requiredRights struct {
	// name is that of the roles and bindings, and subject has the rights.
	name    string
	subject rbacv1.Subject
	// namespace is the one that is mirrored, "" for the whole cluster.
	namespace string
	// groupNamespace is the one with the Leases of the replica group, "" if there are none.
	groupNamespace string
	// mirrored are the resources to mirror, and metadata those that are listed and watched
	// to learn about types.
	mirrored, metadata []kube.Resource
}

// objects returns the roles and their bindings.
func (n *requiredRights) objects() []runtime.Object {
	general := []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: documentPaths}}
	if !n.everywhere(schema.GroupResource{Resource: "namespaces"}) {
		general = append(general, rbacv1.PolicyRule{
			Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"},
			ResourceNames: []string{systemNamespace},
		})
	}
	reads := slices.Concat(rulesOf(n.mirrored, "get", "list", "watch"), rulesOf(n.metadata, "list", "watch"))
	var all []runtime.Object
	if n.namespace == "" {
		all = append(all, n.clusterRole(slices.Concat(reads, general)))
	} else {
		all = append(all, n.role(n.namespace, n.name, reads),
			n.roleBinding(n.namespace, n.name, "Role", n.name), n.clusterRole(general))
	}
	all = append(all, n.clusterRoleBinding(n.name, n.name),
		n.clusterRoleBinding(n.name+":auth-delegator", delegatorRole))
	if !n.everywhere(schema.GroupResource{Resource: "configmaps"}) {
		all = append(all, n.roleBinding(systemNamespace, n.name+":authentication-reader", "Role", authorityRole))
	}
	if n.groupNamespace != "" {
		name := n.name + ":group"
		all = append(all, n.role(n.groupNamespace, name, []rbacv1.PolicyRule{leaseRule}),
			n.roleBinding(n.groupNamespace, name, "Role", name))
	}
	return all
}

// leaseRule has the rights of a member of a replica group.
var leaseRule = rbacv1.PolicyRule{
	Verbs: []string{"get", "list", "create", "update", "delete"}, APIGroups: []string{"coordination.k8s.io"},
	Resources: []string{"leases"},
}

// everywhere reports whether all objects of a resource may be read anyway.
func (n *requiredRights) everywhere(resource schema.GroupResource) bool {
	return n.namespace == "" && slices.ContainsFunc(n.mirrored,
		func(r kube.Resource) bool { return r.GroupResource() == resource })
}

// rulesOf returns a rule for each group of the resources.
func rulesOf(resources []kube.Resource, verbs ...string) []rbacv1.PolicyRule {
	groups := map[string][]string{}
	var order []string
	for _, r := range resources {
		if groups[r.Group] == nil {
			order = append(order, r.Group)
		}
		groups[r.Group] = append(groups[r.Group], r.Resource)
	}
	slices.Sort(order)
	var rules []rbacv1.PolicyRule
	for _, group := range order {
		slices.Sort(groups[group])
		rules = append(rules, rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group},
			Resources: slices.Compact(groups[group])})
	}
	return rules
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func (n *requiredRights) clusterRole(rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{TypeMeta: typeOf("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: n.name},
		Rules: rules}
}

func (n *requiredRights) role(namespace, name string, rules []rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{TypeMeta: typeOf("Role"), ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Rules: rules}
}

func (n *requiredRights) clusterRoleBinding(name, role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: typeOf("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects: []rbacv1.Subject{n.subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: role},
	}
}

func (n *requiredRights) roleBinding(namespace, name, kind, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta: typeOf("RoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Subjects: []rbacv1.Subject{n.subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind,
			Name: role},
	}
}

// print writes the objects as YAML documents.
func (n *requiredRights) print(out io.Writer) error {
	yaml := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{Yaml: true})
	for _, o := range n.objects() {
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return fmt.Errorf("rights: %w", err)
		}
		if err := yaml.Encode(o, out); err != nil {
			return fmt.Errorf("rights: %w", err)
		}
	}
	return nil
}
