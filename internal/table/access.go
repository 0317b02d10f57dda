// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
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

func signingRequestColumns() []column {
	spec := certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return []column{
		nameColumn,
		ageColumn,
		text("SignerName", spec["signerName"]),
		text("Requestor", spec["request"]),
		text("RequestedDuration", spec["expirationSeconds"]),
		text("Condition", certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]),
	}
}

func signingRequestCells(o *certificatesv1.CertificateSigningRequest, now time.Time) []any {
	lifetime := none
	if seconds := o.Spec.ExpirationSeconds; seconds != nil {
		lifetime = duration.HumanDuration(time.Duration(*seconds) * time.Second)
	}
	return []any{
		o.Name, age(o.CreationTimestamp, now), or(o.Spec.SignerName, none), o.Spec.Username, lifetime,
		signingStatus(&o.Status),
	}
}

func signingStatus(s *certificatesv1.CertificateSigningRequestStatus) string {
	has := map[certificatesv1.RequestConditionType]bool{}
	for i := range s.Conditions {
		has[s.Conditions[i].Type] = true
	}
	status := "Pending"
	switch {
	case has[certificatesv1.CertificateDenied]:
		status = "Denied"
	case has[certificatesv1.CertificateApproved]:
		status = "Approved"
	}
	if has[certificatesv1.CertificateFailed] {
		status += ",Failed"
	}
	if len(s.Certificate) > 0 {
		status += ",Issued"
	}
	return status
}

func trustBundleColumns() []column {
	return []column{nameColumn, text("SignerName", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"])}
}

func trustBundleCellsV1(o *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
	return []any{o.Name, or(o.Spec.SignerName, none)}
}

func trustBundleCellsV1beta1(o *certificatesv1beta1.ClusterTrustBundle, _ time.Time) []any {
	return []any{o.Name, or(o.Spec.SignerName, none)}
}

func podRequestColumns() []column {
	spec := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("PodName", spec["podName"]),
		text("ServiceAccountName", spec["serviceAccountName"]),
		text("NodeName", spec["nodeName"]),
		text("SignerName", spec["signerName"]),
		text("State", "Is the request Pending, Issued, Denied, or Failed?"),
		text("UnverifiedUserAnnotations", spec["unverifiedUserAnnotations"]),
	}
}

func podRequestCellsV1(o *certificatesv1.PodCertificateRequest, _ time.Time) []any {
	return []any{
		o.Name, o.Spec.PodName, o.Spec.ServiceAccountName, string(o.Spec.NodeName), o.Spec.SignerName,
		requestState(o.Status.Conditions), labels.FormatLabels(o.Spec.UnverifiedUserAnnotations),
	}
}

// podRequestCellsV1beta1 prints a request as one of version 1, which has the same fields
// to print.
func podRequestCellsV1beta1(o *certificatesv1beta1.PodCertificateRequest, now time.Time) []any {
	v1 := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	v1.Spec.PodName = o.Spec.PodName
	v1.Spec.ServiceAccountName = o.Spec.ServiceAccountName
	v1.Spec.NodeName = o.Spec.NodeName
	v1.Spec.SignerName = o.Spec.SignerName
	v1.Spec.UnverifiedUserAnnotations = o.Spec.UnverifiedUserAnnotations
	v1.Status.Conditions = o.Status.Conditions
	return podRequestCellsV1(v1, now)
}

// requestState returns the last of the three conditions of a certificate request, or
// Pending if it has none of them.
func requestState(conditions []metav1.Condition) string {
	state := "Pending"
	for i := range conditions {
		switch t := conditions[i].Type; t {
		case certificatesv1.PodCertificateRequestConditionTypeIssued,
			certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			state = t
		}
	}
	return state
}
