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
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		text("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of "+
			"contention on the node."),
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
	return []any{
		quota.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), age(quota.CreationTimestamp, now),
	}
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

func eventColumns() []column {
	doc := corev1.Event{}.SwaggerDoc()
	return []column{
		text("Last Seen", doc["lastTimestamp"]),
		text("Type", doc["type"]),
		text("Reason", doc["reason"]),
		text("Object", doc["involvedObject"]),
		wide(text("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"])),
		wide(text("Source", doc["source"])),
		text("Message", doc["message"]),
		wide(text("First Seen", doc["firstTimestamp"])),
		wide(text("Count", doc["count"])),
		wide(nameColumn),
	}
}

// eventCells prints an event of events.k8s.io. It copies the printed fields to an event of
// the core group, which has all of them.
func eventCells(e *eventsv1.Event, now time.Time) []any {
	return coreEventCells(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: e.Name},
		Type:       e.Type, Reason: e.Reason, Message: e.Note,
		InvolvedObject: e.Regarding, Source: e.DeprecatedSource,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
		EventTime: e.EventTime, Series: (*corev1.EventSeries)(e.Series),
	}, now)
}

func coreEventCells(e *corev1.Event, now time.Time) []any {
	first := e.EventTime.Time
	if !e.FirstTimestamp.IsZero() {
		first = e.FirstTimestamp.Time
	}
	last := first
	if !e.LastTimestamp.IsZero() {
		last = e.LastTimestamp.Time
	}
	// An event of the newer kind that occurred once has no count.
	count := e.Count
	if count == 0 {
		count = 1
	}
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, e.Series.Count
	}

	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object += "/" + e.InvolvedObject.Name
	}
	source := or(e.Source.Component, e.ReportingController)
	if host := or(e.Source.Host, e.ReportingInstance); host != "" {
		source += ", " + host
	}
	return []any{
		since(last, now), e.Type, e.Reason, object, e.InvolvedObject.FieldPath, source,
		strings.TrimSpace(e.Message), since(first, now), int64(count), e.Name,
	}
}
