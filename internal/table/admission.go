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

func (r registry) addAdmission() {
	v1, v1beta1, v1alpha1 := admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion, admissionv1alpha1.SchemeGroupVersion

	webhooks := []column{nameColumn, integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), ageColumn}
	r.add(v1, "MutatingWebhookConfiguration", &Printer{columns: webhooks, cells: of(func(o *admissionv1.MutatingWebhookConfiguration, now time.Time) []any {
		return []any{o.Name, int64(len(o.Webhooks)), age(o.CreationTimestamp, now)}
	})})
	r.add(v1, "ValidatingWebhookConfiguration", &Printer{columns: webhooks, cells: of(func(o *admissionv1.ValidatingWebhookConfiguration, now time.Time) []any {
		return []any{o.Name, int64(len(o.Webhooks)), age(o.CreationTimestamp, now)}
	})})

	paramKind := text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy")
	validations := integer("Validations", "Validations indicates the number of validation rules defined in this configuration")
	r.add(v1, "ValidatingAdmissionPolicy", &Printer{
		columns: []column{nameColumn, validations, paramKind, ageColumn},
		cells: of(func(o *admissionv1.ValidatingAdmissionPolicy, now time.Time) []any {
			return policyCells(&o.ObjectMeta, len(o.Spec.Validations), o.Spec.ParamKind, now)
		}),
	})
	mutations := integer("Mutations", "Mutation indicates the number of mutations rules defined in this configuration")
	policies := []column{nameColumn, mutations, paramKind, ageColumn}
	r.add(v1, "MutatingAdmissionPolicy", &Printer{columns: policies, cells: of(func(o *admissionv1.MutatingAdmissionPolicy, now time.Time) []any {
		return policyCells(&o.ObjectMeta, len(o.Spec.Mutations), o.Spec.ParamKind, now)
	})})
	r.add(v1beta1, "MutatingAdmissionPolicy", &Printer{columns: policies, cells: of(func(o *admissionv1beta1.MutatingAdmissionPolicy, now time.Time) []any {
		return policyCells(&o.ObjectMeta, len(o.Spec.Mutations), (*admissionv1.ParamKind)(o.Spec.ParamKind), now)
	})})
	r.add(v1alpha1, "MutatingAdmissionPolicy", &Printer{columns: policies, cells: of(func(o *admissionv1alpha1.MutatingAdmissionPolicy, now time.Time) []any {
		return policyCells(&o.ObjectMeta, len(o.Spec.Mutations), (*admissionv1.ParamKind)(o.Spec.ParamKind), now)
	})})

	bindings := []column{
		nameColumn,
		text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
		text("ParamRef", "ParamRef indicates the param resource which sets the configuration param"),
		ageColumn,
	}
	r.add(v1, "ValidatingAdmissionPolicyBinding", &Printer{columns: bindings, cells: of(func(o *admissionv1.ValidatingAdmissionPolicyBinding, now time.Time) []any {
		ref := unset
		if p := o.Spec.ParamRef; p != nil {
			ref = paramRef(p.Name, p.Namespace, p.Selector)
		}
		return []any{o.Name, o.Spec.PolicyName, ref, age(o.CreationTimestamp, now)}
	})})
	r.add(v1, "MutatingAdmissionPolicyBinding", &Printer{columns: bindings, cells: of(func(o *admissionv1.MutatingAdmissionPolicyBinding, now time.Time) []any {
		ref := unset
		if p := o.Spec.ParamRef; p != nil {
			ref = paramRef(p.Name, p.Namespace, p.Selector)
		}
		return []any{o.Name, o.Spec.PolicyName, ref, age(o.CreationTimestamp, now)}
	})})
	r.add(v1beta1, "MutatingAdmissionPolicyBinding", &Printer{columns: bindings, cells: of(func(o *admissionv1beta1.MutatingAdmissionPolicyBinding, now time.Time) []any {
		ref := unset
		if p := o.Spec.ParamRef; p != nil {
			ref = paramRef(p.Name, p.Namespace, p.Selector)
		}
		return []any{o.Name, o.Spec.PolicyName, ref, age(o.CreationTimestamp, now)}
	})})
	r.add(v1alpha1, "MutatingAdmissionPolicyBinding", &Printer{columns: bindings, cells: of(func(o *admissionv1alpha1.MutatingAdmissionPolicyBinding, now time.Time) []any {
		ref := unset
		if p := o.Spec.ParamRef; p != nil {
			ref = paramRef(p.Name, p.Namespace, p.Selector)
		}
		return []any{o.Name, o.Spec.PolicyName, ref, age(o.CreationTimestamp, now)}
	})})
}

func policyCells(o *metav1.ObjectMeta, rules int, kind *admissionv1.ParamKind, now time.Time) []any {
	param := unset
	if kind != nil {
		param = kind.APIVersion + "/" + kind.Kind
	}
	return []any{o.Name, int64(rules), param, age(o.CreationTimestamp, now)}
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
