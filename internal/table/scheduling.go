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

func (r registry) addScheduling() {
	v1beta1, v1alpha3 := schedulingv1beta1.SchemeGroupVersion, schedulingv1alpha3.SchemeGroupVersion
	class := schedulingv1.PriorityClass{}.SwaggerDoc()
	r.add(schedulingv1.SchemeGroupVersion, "PriorityClass", &Printer{
		columns: []column{
			nameColumn,
			integer("Value", class["value"]),
			boolean("Global-Default", class["globalDefault"]),
			ageColumn,
			text("PreemptionPolicy", class["preemptionPolicy"]),
		},
		cells: of(func(o *schedulingv1.PriorityClass, now time.Time) []any {
			return []any{o.Name, int64(o.Value), o.GlobalDefault, age(o.CreationTimestamp, now), string(deref(o.PreemptionPolicy, ""))}
		}),
	})
	r.add(v1beta1, "Workload", nameAndAge())
	r.add(v1alpha3, "Workload", nameAndAge())

	workload := text("Workload", "Name of the referenced Workload object")
	groups := []column{
		nameColumn,
		text("Policy", schedulingv1beta1.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"]),
		workload,
		text("Status", "Status of the PodGroup"),
		ageColumn,
	}
	r.add(v1beta1, "PodGroup", &Printer{columns: groups, cells: of(func(o *schedulingv1beta1.PodGroup, now time.Time) []any {
		name := none
		if ref := o.Spec.WorkloadRef; ref != nil {
			name = ref.WorkloadName
		}
		policy := schedulingPolicy(o.Spec.SchedulingPolicy.Gang != nil)
		return []any{o.Name, policy, name, groupStatus(o.Status.Conditions), age(o.CreationTimestamp, now)}
	})})
	r.add(v1alpha3, "PodGroup", &Printer{columns: groups, cells: of(func(o *schedulingv1alpha3.PodGroup, now time.Time) []any {
		name := none
		if ref := o.Spec.WorkloadRef; ref != nil {
			name = ref.WorkloadName
		}
		policy := schedulingPolicy(o.Spec.SchedulingPolicy.Gang != nil)
		return []any{o.Name, policy, name, groupStatus(o.Status.Conditions), age(o.CreationTimestamp, now)}
	})})
	r.add(v1alpha3, "CompositePodGroup", &Printer{
		columns: []column{
			nameColumn,
			text("Policy", schedulingv1alpha3.CompositePodGroupSpec{}.SwaggerDoc()["schedulingPolicy"]),
			workload,
			ageColumn,
		},
		cells: of(func(o *schedulingv1alpha3.CompositePodGroup, now time.Time) []any {
			name := none
			if ref := o.Spec.WorkloadRef; ref != nil {
				name = ref.WorkloadName
			}
			return []any{o.Name, schedulingPolicy(o.Spec.SchedulingPolicy.Gang != nil), name, age(o.CreationTimestamp, now)}
		}),
	})
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
