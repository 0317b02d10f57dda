// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func priorityClassColumns() []column {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return []column{
		nameColumn,
		integer("Value", doc["value"]),
		boolean("Global-Default", doc["globalDefault"]),
		ageColumn,
		text("PreemptionPolicy", doc["preemptionPolicy"]),
	}
}

func priorityClassCells(o *schedulingv1.PriorityClass, now time.Time) []any {
	return []any{
		o.Name, int64(o.Value), o.GlobalDefault, age(o.CreationTimestamp, now), string(deref(o.PreemptionPolicy, "")),
	}
}

var workloadColumn = text("Workload", "Name of the referenced Workload object")

func podGroupColumns() []column {
	return []column{
		nameColumn,
		text("Policy", schedulingv1beta1.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"]),
		workloadColumn,
		text("Status", "Status of the PodGroup"),
		ageColumn,
	}
}

func podGroupCellsV1beta1(o *schedulingv1beta1.PodGroup, now time.Time) []any {
	policy := schedulingPolicy(o.Spec.SchedulingPolicy.Gang != nil)
	workload := workloadName(o.Spec.WorkloadRef)
	return []any{o.Name, policy, workload, groupStatus(o.Status.Conditions), age(o.CreationTimestamp, now)}
}

func podGroupCellsV1alpha3(o *schedulingv1alpha3.PodGroup, now time.Time) []any {
	policy := schedulingPolicy(o.Spec.SchedulingPolicy.Gang != nil)
	workload := workloadName((*schedulingv1beta1.WorkloadReference)(o.Spec.WorkloadRef))
	return []any{o.Name, policy, workload, groupStatus(o.Status.Conditions), age(o.CreationTimestamp, now)}
}

func compositePodGroupColumns() []column {
	return []column{
		nameColumn,
		text("Policy", schedulingv1alpha3.CompositePodGroupSpec{}.SwaggerDoc()["schedulingPolicy"]),
		workloadColumn,
		ageColumn,
	}
}

func compositePodGroupCells(o *schedulingv1alpha3.CompositePodGroup, now time.Time) []any {
	policy := schedulingPolicy(o.Spec.SchedulingPolicy.Gang != nil)
	workload := workloadName((*schedulingv1beta1.WorkloadReference)(o.Spec.WorkloadRef))
	return []any{o.Name, policy, workload, age(o.CreationTimestamp, now)}
}

// workloadName returns the name of the workload that a group belongs to.
func workloadName(ref *schedulingv1beta1.WorkloadReference) string {
	if ref == nil {
		return none
	}
	return ref.WorkloadName
}

func schedulingPolicy(gang bool) string {
	if gang {
		return "Gang"
	}
	return "Basic"
}

// groupStatus returns why a group is disrupted, or else whether it was scheduled.
func groupStatus(conditions []metav1.Condition) string {
	status, disrupted := "Pending", ""
	isDisrupted := false
	for i := range conditions {
		switch c := &conditions[i]; c.Type {
		case schedulingv1beta1.PodGroupInitiallyScheduled:
			status = "Unschedulable"
			if c.Status == metav1.ConditionTrue {
				status = "Scheduled"
			}
		case schedulingv1beta1.DisruptionTarget:
			isDisrupted, disrupted = true, c.Reason
		}
	}
	if isDisrupted {
		return disrupted
	}
	return status
}
