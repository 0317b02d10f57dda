// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func coreEvents() *Set {
	s := set(eventValues(func(e *corev1.Event) eventView {
		return eventView{&e.InvolvedObject, &e.Source, e.ReportingController, e.Reason, e.Type}
	}), name, namespace)
	s.paths = map[string]string{"source": ""}
	return s
}

// events returns the labels of events.k8s.io. They are other names for the labels of the
// same event in the core group.
func events() *Set {
	s := set(eventValues(func(e *eventsv1.Event) eventView {
		return eventView{&e.Regarding, &e.DeprecatedSource, e.ReportingController, e.Reason, e.Type}
	}), name, namespace)
	s.paths = map[string]string{"source": "", "reportingComponent": "reportingController"}
	for label := range s.labels {
		if field, ok := strings.CutPrefix(label, "involvedObject."); ok {
			delete(s.labels, label)
			s.labels["regarding."+field] = label
			s.paths[label] = "regarding." + field
		}
	}
	delete(s.labels, "source")
	delete(s.labels, "reportingComponent")
	s.labels["reportingController"] = "reportingComponent"
	return s
}

// eventView has the fields by which both kinds of event can be selected.
type eventView struct {
	object                   *corev1.ObjectReference
	source                   *corev1.EventSource
	controller, reason, kind string
}

func eventValues[O runtime.Object](view func(O) eventView) map[string]func(O) string {
	of := func(field func(eventView) string) func(O) string {
		return func(o O) string { return field(view(o)) }
	}
	return map[string]func(O) string{
		"involvedObject.kind":            of(func(e eventView) string { return e.object.Kind }),
		"involvedObject.namespace":       of(func(e eventView) string { return e.object.Namespace }),
		"involvedObject.name":            of(func(e eventView) string { return e.object.Name }),
		"involvedObject.uid":             of(func(e eventView) string { return string(e.object.UID) }),
		"involvedObject.apiVersion":      of(func(e eventView) string { return e.object.APIVersion }),
		"involvedObject.resourceVersion": of(func(e eventView) string { return e.object.ResourceVersion }),
		"involvedObject.fieldPath":       of(func(e eventView) string { return e.object.FieldPath }),
		"reason":                         of(func(e eventView) string { return e.reason }),
		"type":                           of(func(e eventView) string { return e.kind }),
		"reportingComponent":             of(func(e eventView) string { return e.controller }),
		"source": of(func(e eventView) string {
			if e.source.Component != "" {
				return e.source.Component
			}
			return e.controller
		}),
	}
}
