// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
)

func namespaceColumns() []column {
	return []column{nameColumn, text("Status", "The status of the namespace"), ageColumn}
}

func namespaceCells(o *corev1.Namespace, now time.Time) []any {
	return []any{o.Name, string(o.Status.Phase), age(o.CreationTimestamp, now)}
}

func configMapColumns() []column {
	return []column{nameColumn, text("Data", corev1.ConfigMap{}.SwaggerDoc()["data"]), ageColumn}
}

func configMapCells(o *corev1.ConfigMap, now time.Time) []any {
	return []any{o.Name, int64(len(o.Data) + len(o.BinaryData)), age(o.CreationTimestamp, now)}
}

func secretColumns() []column {
	doc := corev1.Secret{}.SwaggerDoc()
	return []column{nameColumn, text("Type", doc["type"]), text("Data", doc["data"]), ageColumn}
}

func secretCells(o *corev1.Secret, now time.Time) []any {
	return []any{o.Name, string(o.Type), int64(len(o.Data)), age(o.CreationTimestamp, now)}
}

func quotaColumns() []column {
	return []column{
		nameColumn,
		text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
		text("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."),
		ageColumn,
	}
}

// quotaCells returns how much of each quota is used: limits in one cell, everything else
// in another.
func quotaCells(quota *corev1.ResourceQuota, now time.Time) []any {
	var requests, limits []string
	for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
		used, hard := quota.Status.Used[name], quota.Status.Hard[name]
		entry := string(name) + ": " + used.String() + "/" + hard.String()
		if strings.HasPrefix(string(name), "limits.") {
			limits = append(limits, entry)
		} else {
			requests = append(requests, entry)
		}
	}
	return []any{quota.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), age(quota.CreationTimestamp, now)}
}

func componentColumns() []column {
	return []column{
		nameColumn,
		text("Status", "Status of the component conditions"),
		text("Message", "Message of the component conditions"),
		text("Error", "Error of the component conditions"),
	}
}

func componentCells(component *corev1.ComponentStatus, _ time.Time) []any {
	for _, c := range component.Conditions {
		if c.Type != corev1.ComponentHealthy {
			continue
		}
		status := "Unhealthy"
		if c.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
		return []any{component.Name, status, c.Message, c.Error}
	}
	return []any{component.Name, "Unknown", "", ""}
}

func leaseColumns() []column {
	return []column{nameColumn, text("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]), ageColumn}
}

func leaseCells(o *coordinationv1.Lease, now time.Time) []any {
	return []any{o.Name, deref(o.Spec.HolderIdentity, ""), age(o.CreationTimestamp, now)}
}

func candidateColumns() []column {
	return []column{
		nameColumn,
		text("LeaseName", coordinationv1alpha2.LeaseCandidateSpec{}.SwaggerDoc()["leaseName"]),
		text("BinaryVersion", ""),
		text("EmulationVersion", ""),
		ageColumn,
	}
}

func candidateCellsV1beta1(o *coordinationv1beta1.LeaseCandidate, now time.Time) []any {
	return []any{o.Name, o.Spec.LeaseName, o.Spec.BinaryVersion, o.Spec.EmulationVersion, age(o.CreationTimestamp, now)}
}

func candidateCellsV1alpha2(o *coordinationv1alpha2.LeaseCandidate, now time.Time) []any {
	return []any{o.Name, o.Spec.LeaseName, o.Spec.BinaryVersion, o.Spec.EmulationVersion, age(o.CreationTimestamp, now)}
}
