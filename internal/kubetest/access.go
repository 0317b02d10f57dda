// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Grant allows a user what the rules allow, in one namespace or, if that is empty, in the
// whole cluster. It returns when the API server applies the rules. It adds to earlier
// grants. The namespace must exist.
func (c *Cluster) Grant(ctx context.Context, user, namespace string, rules ...rbacv1.PolicyRule) error {
	if err := c.grant(ctx, user, namespace, rules); err != nil {
		return fmt.Errorf("grant to %s in %q: %w", user, namespace, err)
	}
	return nil
}

func (c *Cluster) grant(ctx context.Context, user, namespace string, rules []rbacv1.PolicyRule) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{
		GenerateName: "grant-", Namespace: namespace, Labels: map[string]string{grantLabel: grantee(user)},
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	rbac := client.RbacV1()
	if namespace == "" {
		role, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		if _, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: ref,
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	} else {
		role, err := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
		if _, err := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: ref,
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, r := range rules {
		if err := poll(ctx, "the grant", func(ctx context.Context) error {
			return allowed(ctx, client, user, namespace, r)
		}); err != nil {
			return err
		}
	}
	return nil
}

// Revoke removes all grants of a user. The API server applies this a moment later.
func (c *Cluster) Revoke(ctx context.Context, user string) error {
	if err := c.revoke(ctx, user); err != nil {
		return fmt.Errorf("revoke from %s: %w", user, err)
	}
	return nil
}

func (c *Cluster) revoke(ctx context.Context, user string) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	rbac := client.RbacV1()
	of := metav1.ListOptions{LabelSelector: grantLabel + "=" + grantee(user)}
	// Bindings are deleted first: a role without a binding allows nothing.
	if err := rbac.ClusterRoleBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, of); err != nil {
		return err
	}
	if err := rbac.ClusterRoles().DeleteCollection(ctx, metav1.DeleteOptions{}, of); err != nil {
		return err
	}
	bindings, err := rbac.RoleBindings("").List(ctx, of)
	if err != nil {
		return err
	}
	for _, b := range bindings.Items {
		if err := rbac.RoleBindings(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := rbac.Roles(b.Namespace).Delete(ctx, b.RoleRef.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// allowed asks the API server whether a user may do one thing that r allows. The server
// applies a rule as a whole.
func allowed(ctx context.Context, client kubernetes.Interface, user, namespace string, r rbacv1.PolicyRule) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}}
	first := func(s []string) string {
		if len(s) == 0 {
			return ""
		}
		return s[0]
	}
	if len(r.NonResourceURLs) > 0 {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: r.NonResourceURLs[0],
			Verb: first(r.Verbs)}
	} else {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace,
			Verb:      first(r.Verbs),
			Group:     first(r.APIGroups),
			Resource:  first(r.Resources),
			Name:      first(r.ResourceNames),
		}
	}
	answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !answer.Status.Allowed {
		return fmt.Errorf("%s may not %s %s yet: %s", user, first(r.Verbs), first(r.Resources), answer.Status.Reason)
	}
	return nil
}

const grantLabel = "kubetest/grantee"

// grantee returns a user's name as a label value, which allows fewer characters than a
// name.
func grantee(user string) string {
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:16])
}
