// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func evictionRequestColumns() []column {
	spec := lifecyclev1alpha1.EvictionRequestSpec{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Target", spec["target"]),
		text("Target Type", spec["target"]),
		text("Status", lifecyclev1alpha1.EvictionRequestStatus{}.SwaggerDoc()["conditions"]),
		text("Requester", spec["requester"]),
		text("Intent", spec["intent"]),
		ageColumn,
	}
}

func evictionRequestCells(o *lifecyclev1alpha1.EvictionRequest, now time.Time) []any {
	target, kind := unset, unset
	if pod := o.Spec.Target.Pod; pod != nil {
		target, kind = pod.Name, "Pod"
	}
	return []any{
		o.Name, target, kind, evictionStatus(o.Status.ObservedGeneration, o.Status.Conditions),
		o.Spec.Requester, string(o.Spec.Intent), age(o.CreationTimestamp, now),
	}
}

func evictionColumns() []column {
	target := lifecyclev1alpha1.EvictionSpec{}.SwaggerDoc()["target"]
	responder := lifecyclev1alpha1.ResponderStatus{}.SwaggerDoc()
	status := lifecyclev1alpha1.EvictionStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Target", target),
		text("Target Type", target),
		text("Status", status["conditions"]),
		text("Active Responder", lifecyclev1alpha1.TargetResponder{}.SwaggerDoc()["state"]),
		text("Responder Status", responder[""]),
		text("Responder Expected Finish", responder["expectedCompletionTime"]),
		text("Requesters", status["requesters"]),
		ageColumn,
		wide(text("Responder Heartbeat", responder["heartbeatTime"])),
		wide(text("Responder Status Message", responder["message"])),
	}
}

func evictionCells(o *lifecyclev1alpha1.Eviction, now time.Time) []any {
	target, kind := unset, unset
	if pod := o.Spec.Target.Pod; pod != nil {
		target, kind = pod.Name, "Pod"
	}
	active, begun := activeResponder(o.Status.TargetResponders)
	name, report := unset, reportOf(nil, nil, now)
	if active != nil {
		name = active.Name
		i := slices.IndexFunc(o.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool {
			return r.Name == active.Name
		})
		if i >= 0 {
			report = reportOf(active, &o.Status.Responders[i], now)
		}
	}
	return []any{
		o.Name, target, kind, evictionStatus(o.Status.ObservedGeneration, o.Status.Conditions),
		name + " (" + ratio(begun, len(o.Status.TargetResponders)) + ")", report.status, report.finish,
		requesters(o.Status.Requesters), age(o.CreationTimestamp, now), report.heartbeat, report.message,
	}
}

func evictionStatus(observed *int64, conditions []metav1.Condition) string {
	status := "Pending"
	if deref(observed, 0) > 0 {
		status = "Progressing"
	}
	// A target that is gone takes precedence over a failure.
	for _, t := range []lifecyclev1alpha1.EvictionConditionType{
		lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.EvictionConditionTargetEvicted,
	} {
		i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == string(t) })
		if i >= 0 && conditions[i].Status == metav1.ConditionTrue {
			status = fmt.Sprintf("%s (%s)", conditions[i].Type, conditions[i].Reason)
		}
	}
	return status
}

// activeResponder returns the last responder that is active, or that was active if none
// is, and how many of them began.
func activeResponder(list []lifecyclev1alpha1.TargetResponder) (active *lifecyclev1alpha1.TargetResponder, begun int) {
	var done *lifecyclev1alpha1.TargetResponder
	for i := range list {
		switch list[i].State {
		case lifecyclev1alpha1.ResponderStateCanceled, lifecyclev1alpha1.ResponderStateInterrupted,
			lifecyclev1alpha1.ResponderStateCompleted:
			begun++
			done = &list[i]
		case lifecyclev1alpha1.ResponderStateActive:
			begun++
			active = &list[i]
		}
	}
	if active == nil {
		active = done
	}
	return active, begun
}

// responderReport is the progress that a responder reports.
type responderReport struct{ status, finish, heartbeat, message string }

func reportOf(
	responder *lifecyclev1alpha1.TargetResponder, s *lifecyclev1alpha1.ResponderStatus, now time.Time,
) responderReport {
	r := responderReport{status: unset, finish: unknown, heartbeat: unset, message: unset}
	if responder == nil || s == nil {
		return r
	}
	r.status = string(responder.State)
	switch responder.State {
	case lifecyclev1alpha1.ResponderStateActive:
		if s.StartTime == nil {
			break
		}
		r.status = "Started (" + age(*s.StartTime, now) + " ago)"
		if t := s.ExpectedCompletionTime; t != nil {
			// The estimate may have been wrong.
			r.finish = age(*t, now) + " ago"
			if t.After(now) {
				r.finish = "in " + since(now, t.Time)
			}
		}
	case lifecyclev1alpha1.ResponderStateCanceled, lifecyclev1alpha1.ResponderStateInterrupted:
		r.finish = "-"
	case lifecyclev1alpha1.ResponderStateCompleted:
		r.finish = "-"
		if t := s.CompletionTime; t != nil {
			r.status += " (" + age(*t, now) + " ago)"
		}
	}
	if s.HeartbeatTime != nil {
		r.heartbeat = age(*s.HeartbeatTime, now) + " ago"
	}
	r.message = or(strings.TrimSpace(deref(s.Message, "")), unset)
	return r
}

// requesters returns the first, by name, of those that still want the eviction.
func requesters(list []lifecyclev1alpha1.Requester) string {
	var names []string
	for _, r := range list {
		if r.Intent != lifecyclev1alpha1.RequesterIntentWithdrawn {
			names = append(names, r.Name)
		}
	}
	switch {
	case len(list) == 0:
		return none
	case len(names) == 0:
		return "<withdrawn>"
	}
	slices.Sort(names)
	return or(clip(names[:1], ",", len(names)), unset)
}
