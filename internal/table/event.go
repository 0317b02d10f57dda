// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
