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

func (r registry) addEvents() {
	doc := corev1.Event{}.SwaggerDoc()
	columns := []column{
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
	r.add(corev1.SchemeGroupVersion, "Event", &Printer{columns: columns, cells: of(coreEventCells)})
	r.add(eventsv1.SchemeGroupVersion, "Event", &Printer{columns: columns, cells: of(eventCells)})
}

// occurrence has the fields that both kinds of event have.
type occurrence struct {
	name, kind, reason, message string
	object                      *corev1.ObjectReference
	source                      *corev1.EventSource
	controller, instance        string
	first, last                 metav1.Time
	time                        metav1.MicroTime
	count                       int32
	inSeries                    bool
	seriesCount                 int32
	seriesLast                  metav1.MicroTime
}

func coreEventCells(e *corev1.Event, now time.Time) []any {
	o := occurrence{
		name: e.Name, kind: e.Type, reason: e.Reason, message: e.Message,
		object: &e.InvolvedObject, source: &e.Source, controller: e.ReportingController, instance: e.ReportingInstance,
		first: e.FirstTimestamp, last: e.LastTimestamp, time: e.EventTime, count: e.Count,
	}
	if s := e.Series; s != nil {
		o.inSeries, o.seriesCount, o.seriesLast = true, s.Count, s.LastObservedTime
	}
	return o.cells(now)
}

func eventCells(e *eventsv1.Event, now time.Time) []any {
	o := occurrence{
		name: e.Name, kind: e.Type, reason: e.Reason, message: e.Note,
		object: &e.Regarding, source: &e.DeprecatedSource, controller: e.ReportingController, instance: e.ReportingInstance,
		first: e.DeprecatedFirstTimestamp, last: e.DeprecatedLastTimestamp, time: e.EventTime, count: e.DeprecatedCount,
	}
	if s := e.Series; s != nil {
		o.inSeries, o.seriesCount, o.seriesLast = true, s.Count, s.LastObservedTime
	}
	return o.cells(now)
}

func (o *occurrence) cells(now time.Time) []any {
	first := o.time.Time
	if !o.first.IsZero() {
		first = o.first.Time
	}
	last := first
	if !o.last.IsZero() {
		last = o.last.Time
	}
	// An event of the newer kind that occurred once has no count.
	count := o.count
	if count == 0 {
		count = 1
	}
	if o.inSeries {
		last, count = o.seriesLast.Time, o.seriesCount
	}

	object := strings.ToLower(o.object.Kind)
	if o.object.Name != "" {
		object += "/" + o.object.Name
	}
	source := or(o.source.Component, o.controller)
	if host := or(o.source.Host, o.instance); host != "" {
		source += ", " + host
	}
	return []any{
		since(last, now), o.kind, o.reason, object, o.object.FieldPath, source,
		strings.TrimSpace(o.message), since(first, now), int64(count), o.name,
	}
}
