// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func roleBindingColumns() []column {
	return bindingColumns(rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"], "roleBinding")
}

func roleBindingCells(o *rbacv1.RoleBinding, now time.Time) []any {
	return bindingCells(&o.ObjectMeta, &o.RoleRef, o.Subjects, now)
}

func clusterRoleBindingColumns() []column {
	return bindingColumns(rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"], "clusterRoleBinding")
}

func clusterRoleBindingCells(o *rbacv1.ClusterRoleBinding, now time.Time) []any {
	return bindingCells(&o.ObjectMeta, &o.RoleRef, o.Subjects, now)
}

func bindingColumns(role, binding string) []column {
	return []column{
		nameColumn,
		text("Role", role),
		ageColumn,
		wide(text("Users", "Users in the "+binding)),
		wide(text("Groups", "Groups in the "+binding)),
		wide(text("ServiceAccounts", "ServiceAccounts in the "+binding)),
	}
}

func bindingCells(o *metav1.ObjectMeta, role *rbacv1.RoleRef, subjects []rbacv1.Subject, now time.Time) []any {
	var users, groups, accounts []string
	for i := range subjects {
		switch s := &subjects[i]; s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		o.Name, role.Kind + "/" + role.Name, age(o.CreationTimestamp, now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}
