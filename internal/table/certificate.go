// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

func (r registry) addCertificates() {
	v1, v1beta1 := certificatesv1.SchemeGroupVersion, certificatesv1beta1.SchemeGroupVersion
	request := certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()
	r.add(v1, "CertificateSigningRequest", &Printer{
		columns: []column{
			nameColumn,
			ageColumn,
			text("SignerName", request["signerName"]),
			text("Requestor", request["request"]),
			text("RequestedDuration", request["expirationSeconds"]),
			text("Condition", certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]),
		},
		cells: of(signingRequestCells),
	})

	bundles := []column{nameColumn, text("SignerName", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"])}
	r.add(v1, "ClusterTrustBundle", &Printer{columns: bundles, cells: of(func(o *certificatesv1.ClusterTrustBundle, _ time.Time) []any {
		return []any{o.Name, or(o.Spec.SignerName, none)}
	})})
	r.add(v1beta1, "ClusterTrustBundle", &Printer{columns: bundles, cells: of(func(o *certificatesv1beta1.ClusterTrustBundle, _ time.Time) []any {
		return []any{o.Name, or(o.Spec.SignerName, none)}
	})})

	pod := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	requests := []column{
		nameColumn,
		text("PodName", pod["podName"]),
		text("ServiceAccountName", pod["serviceAccountName"]),
		text("NodeName", pod["nodeName"]),
		text("SignerName", pod["signerName"]),
		text("State", "Is the request Pending, Issued, Denied, or Failed?"),
		text("UnverifiedUserAnnotations", pod["unverifiedUserAnnotations"]),
	}
	r.add(v1, "PodCertificateRequest", &Printer{columns: requests, cells: of(func(o *certificatesv1.PodCertificateRequest, _ time.Time) []any {
		return []any{
			o.Name, o.Spec.PodName, o.Spec.ServiceAccountName, string(o.Spec.NodeName), o.Spec.SignerName,
			requestState(o.Status.Conditions), labels.FormatLabels(o.Spec.UnverifiedUserAnnotations),
		}
	})})
	r.add(v1beta1, "PodCertificateRequest", &Printer{columns: requests, cells: of(func(o *certificatesv1beta1.PodCertificateRequest, _ time.Time) []any {
		return []any{
			o.Name, o.Spec.PodName, o.Spec.ServiceAccountName, string(o.Spec.NodeName), o.Spec.SignerName,
			requestState(o.Status.Conditions), labels.FormatLabels(o.Spec.UnverifiedUserAnnotations),
		}
	})})
}

func signingRequestCells(o *certificatesv1.CertificateSigningRequest, now time.Time) []any {
	lifetime := none
	if seconds := o.Spec.ExpirationSeconds; seconds != nil {
		lifetime = duration.HumanDuration(time.Duration(*seconds) * time.Second)
	}
	return []any{
		o.Name, age(o.CreationTimestamp, now), or(o.Spec.SignerName, none), o.Spec.Username, lifetime, signingStatus(&o.Status),
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
