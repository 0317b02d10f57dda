// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func webhookColumns() []column {
	return []column{
		nameColumn, integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"),
		ageColumn,
	}
}

func mutatingWebhookCells(o *admissionv1.MutatingWebhookConfiguration, now time.Time) []any {
	return []any{o.Name, int64(len(o.Webhooks)), age(o.CreationTimestamp, now)}
}

func validatingWebhookCells(o *admissionv1.ValidatingWebhookConfiguration, now time.Time) []any {
	return []any{o.Name, int64(len(o.Webhooks)), age(o.CreationTimestamp, now)}
}

// policyColumns returns the columns of policies, with a column for the number of rules.
func policyColumns(rules column) []column {
	return []column{
		nameColumn, rules, text("ParamKind",
			"ParamKind specifies the kind of resources used to parameterize this policy"), ageColumn,
	}
}

func validatingPolicyColumns() []column {
	return policyColumns(integer("Validations",
		"Validations indicates the number of validation rules defined in this configuration"))
}

func validatingPolicyCells(o *admissionv1.ValidatingAdmissionPolicy, now time.Time) []any {
	return policyCells(&o.ObjectMeta, len(o.Spec.Validations), o.Spec.ParamKind, now)
}

func mutatingPolicyColumns() []column {
	return policyColumns(integer("Mutations",
		"Mutation indicates the number of mutations rules defined in this configuration"))
}

func mutatingPolicyCellsV1(o *admissionv1.MutatingAdmissionPolicy, now time.Time) []any {
	return policyCells(&o.ObjectMeta, len(o.Spec.Mutations), o.Spec.ParamKind, now)
}

func mutatingPolicyCellsV1beta1(o *admissionv1beta1.MutatingAdmissionPolicy, now time.Time) []any {
	return policyCells(&o.ObjectMeta, len(o.Spec.Mutations), (*admissionv1.ParamKind)(o.Spec.ParamKind), now)
}

func mutatingPolicyCellsV1alpha1(o *admissionv1alpha1.MutatingAdmissionPolicy, now time.Time) []any {
	return policyCells(&o.ObjectMeta, len(o.Spec.Mutations), (*admissionv1.ParamKind)(o.Spec.ParamKind), now)
}

func policyCells(o *metav1.ObjectMeta, rules int, kind *admissionv1.ParamKind, now time.Time) []any {
	param := unset
	if kind != nil {
		param = kind.APIVersion + "/" + kind.Kind
	}
	return []any{o.Name, int64(rules), param, age(o.CreationTimestamp, now)}
}

func policyBindingColumns() []column {
	return []column{
		nameColumn,
		text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
		text("ParamRef", "ParamRef indicates the param resource which sets the configuration param"),
		ageColumn,
	}
}

func validatingBindingCells(o *admissionv1.ValidatingAdmissionPolicyBinding, now time.Time) []any {
	ref := deref(o.Spec.ParamRef, admissionv1.ParamRef{})
	return policyBindingCells(&o.ObjectMeta, o.Spec.PolicyName, paramRef(ref.Name, ref.Namespace, ref.Selector), now)
}

func mutatingBindingCellsV1(o *admissionv1.MutatingAdmissionPolicyBinding, now time.Time) []any {
	ref := deref(o.Spec.ParamRef, admissionv1.ParamRef{})
	return policyBindingCells(&o.ObjectMeta, o.Spec.PolicyName, paramRef(ref.Name, ref.Namespace, ref.Selector), now)
}

func mutatingBindingCellsV1beta1(o *admissionv1beta1.MutatingAdmissionPolicyBinding, now time.Time) []any {
	ref := deref(o.Spec.ParamRef, admissionv1beta1.ParamRef{})
	return policyBindingCells(&o.ObjectMeta, o.Spec.PolicyName, paramRef(ref.Name, ref.Namespace, ref.Selector), now)
}

func mutatingBindingCellsV1alpha1(o *admissionv1alpha1.MutatingAdmissionPolicyBinding, now time.Time) []any {
	ref := deref(o.Spec.ParamRef, admissionv1alpha1.ParamRef{})
	return policyBindingCells(&o.ObjectMeta, o.Spec.PolicyName, paramRef(ref.Name, ref.Namespace, ref.Selector), now)
}

func policyBindingCells(o *metav1.ObjectMeta, policy, params string, now time.Time) []any {
	return []any{o.Name, policy, params, age(o.CreationTimestamp, now)}
}

// paramRef returns the name of a policy's parameters, or how they are selected. A binding
// does not define whether they have a namespace: without one it is any.
func paramRef(name, namespace string, selector *metav1.LabelSelector) string {
	switch {
	case name != "":
		return or(namespace, "*") + "/" + name
	case selector != nil:
		return selector.String()
	}
	return unset
}
