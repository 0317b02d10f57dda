// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func autoscalerColumns() []column {
	spec := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()
	status := autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Reference", spec["scaleTargetRef"]),
		text("Targets", spec["metrics"]),
		text("MinPods", spec["minReplicas"]),
		text("MaxPods", spec["maxReplicas"]),
		text("Replicas", status["currentReplicas"]),
		ageColumn,
	}
}

func autoscalerCellsV1(o *autoscalingv1.HorizontalPodAutoscaler, now time.Time) []any {
	return autoscalerCells(modernAutoscaler(o), now)
}

func autoscalerCells(o *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	least := unset
	if n := o.Spec.MinReplicas; n != nil {
		least = strconv.Itoa(int(*n))
	}
	return []any{
		o.Name, o.Spec.ScaleTargetRef.Kind + "/" + o.Spec.ScaleTargetRef.Name,
		metricTargets(o.Spec.Metrics, o.Status.CurrentMetrics),
		least, int64(o.Spec.MaxReplicas), int64(o.Status.CurrentReplicas), age(o.CreationTimestamp, now),
	}
}

// metricTargets returns the current and the target values of metrics. The status of a
// metric has the same index as the metric.
func metricTargets(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	const shown = 2
	if len(specs) == 0 {
		return none
	}
	var list []string
	for i := range specs[:min(len(specs), shown)] {
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		list = append(list, metricTarget(&specs[i], &status))
	}
	return clip(list, ", ", len(specs))
}

func metricTarget(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	current := currentMetric(spec.Type, status)
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return valueTarget(&spec.External.Target, current)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		return valueTarget(&spec.Object.Target, current)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		now := unknown
		if current != nil {
			now = quantity(current.AverageValue)
		}
		return now + "/" + quantity(spec.Pods.Target.AverageValue)
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return string(spec.Resource.Name) + ": " + usageTarget(&spec.Resource.Target, current)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return string(spec.ContainerResource.Name) + ": " + usageTarget(&spec.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

// currentMetric returns the current value of a metric of a type, nil if the status does
// not have it.
func currentMetric(
	t autoscalingv2.MetricSourceType, status *autoscalingv2.MetricStatus,
) *autoscalingv2.MetricValueStatus {
	switch {
	case t == autoscalingv2.ExternalMetricSourceType && status.External != nil:
		return &status.External.Current
	case t == autoscalingv2.ObjectMetricSourceType && status.Object != nil:
		return &status.Object.Current
	case t == autoscalingv2.PodsMetricSourceType && status.Pods != nil:
		return &status.Pods.Current
	case t == autoscalingv2.ResourceMetricSourceType && status.Resource != nil:
		return &status.Resource.Current
	case t == autoscalingv2.ContainerResourceMetricSourceType && status.ContainerResource != nil:
		return &status.ContainerResource.Current
	}
	return nil
}

// valueTarget returns the current and the target of a metric that is a value, or an
// average value per pod.
func valueTarget(target *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	now := unknown
	if target.AverageValue != nil {
		if current != nil && current.AverageValue != nil {
			now = quantity(current.AverageValue)
		}
		return now + "/" + quantity(target.AverageValue) + " (avg)"
	}
	if current != nil {
		now = quantity(current.Value)
	}
	return now + "/" + quantity(target.Value)
}

// usageTarget returns the current and the target of the pods' use of a resource, as an
// amount or in percent of their requests.
func usageTarget(target *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	now := unknown
	if target.AverageValue != nil {
		if current != nil {
			now = quantity(current.AverageValue)
		}
		return now + "/" + quantity(target.AverageValue)
	}
	if current != nil && current.AverageUtilization != nil {
		now = percent(*current.AverageUtilization)
	}
	want := "<auto>"
	if target.AverageUtilization != nil {
		want = percent(*target.AverageUtilization)
	}
	return now + "/" + want
}

func percent(n int32) string { return fmt.Sprintf("%d%%", n) }

// Annotations in which autoscaling/v1 stores the metrics for which it has no fields.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
)

// modernAutoscaler returns the printed parts of an autoscaler, in version 2.
func modernAutoscaler(o *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	m := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: o.ObjectMeta}
	m.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference(o.Spec.ScaleTargetRef)
	m.Spec.MinReplicas, m.Spec.MaxReplicas = o.Spec.MinReplicas, o.Spec.MaxReplicas
	m.Status.CurrentReplicas = o.Status.CurrentReplicas
	m.Status.CurrentMetrics = modernStatuses(o)
	m.Spec.Metrics = modernMetrics(o, m.Status.CurrentMetrics)
	return m
}

// modernMetrics returns the metrics of the annotation and, if the field is set, that of
// the CPU: at its place among the statuses, or first.
func modernMetrics(
	o *autoscalingv1.HorizontalPodAutoscaler, statuses []autoscalingv2.MetricStatus,
) []autoscalingv2.MetricSpec {
	var others []autoscalingv1.MetricSpec
	if s, ok := o.Annotations[metricsAnnotation]; ok && json.Unmarshal([]byte(s), &others) != nil {
		others = nil
	}
	metrics := make([]autoscalingv2.MetricSpec, 0, len(others)+1)
	for i := range others {
		metrics = append(metrics, modernMetric(&others[i]))
	}
	target := o.Spec.TargetCPUUtilizationPercentage
	if target == nil {
		return metrics
	}
	at := max(slices.IndexFunc(statuses, func(s autoscalingv2.MetricStatus) bool {
		return s.Type == autoscalingv2.ResourceMetricSourceType && s.Resource != nil &&
			s.Resource.Name == corev1.ResourceCPU
	}), 0)
	return slices.Insert(metrics, min(at, len(metrics)), autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{AverageUtilization: target},
		},
	})
}

func modernMetric(m *autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	n := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		target := autoscalingv2.MetricTarget{AverageValue: s.AverageValue}
		if s.AverageValue == nil {
			target.Value = &s.TargetValue
		}
		n.Object = &autoscalingv2.ObjectMetricSource{Target: target}
	}
	if s := m.Pods; s != nil {
		n.Pods = &autoscalingv2.PodsMetricSource{
			Target: autoscalingv2.MetricTarget{AverageValue: &s.TargetAverageValue},
		}
	}
	if s := m.Resource; s != nil {
		n.Resource = &autoscalingv2.ResourceMetricSource{
			Name: s.Name,
			Target: autoscalingv2.MetricTarget{
				AverageValue: s.TargetAverageValue, AverageUtilization: s.TargetAverageUtilization,
			},
		}
	}
	if s := m.ContainerResource; s != nil {
		n.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: s.Name,
			Target: autoscalingv2.MetricTarget{
				AverageValue: s.TargetAverageValue, AverageUtilization: s.TargetAverageUtilization,
			},
		}
	}
	if s := m.External; s != nil {
		n.External = &autoscalingv2.ExternalMetricSource{
			Target: autoscalingv2.MetricTarget{Value: s.TargetValue, AverageValue: s.TargetAverageValue},
		}
	}
	return n
}

// modernStatuses returns the statuses of the annotation, which has more than the field.
func modernStatuses(o *autoscalingv1.HorizontalPodAutoscaler) []autoscalingv2.MetricStatus {
	var current []autoscalingv1.MetricStatus
	if s, ok := o.Annotations[currentMetricsAnnotation]; ok && json.Unmarshal([]byte(s), &current) == nil {
		statuses := make([]autoscalingv2.MetricStatus, 0, len(current))
		for i := range current {
			statuses = append(statuses, modernStatus(&current[i]))
		}
		return statuses
	}
	if o.Status.CurrentCPUUtilizationPercentage == nil {
		return nil
	}
	return []autoscalingv2.MetricStatus{{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricStatus{
			Name:    corev1.ResourceCPU,
			Current: autoscalingv2.MetricValueStatus{AverageUtilization: o.Status.CurrentCPUUtilizationPercentage},
		},
	}}
}

func modernStatus(m *autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	n := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(m.Type)}
	current := func(value, average *resource.Quantity, utilization *int32) autoscalingv2.MetricValueStatus {
		return autoscalingv2.MetricValueStatus{Value: value, AverageValue: average, AverageUtilization: utilization}
	}
	if s := m.Object; s != nil {
		n.Object = &autoscalingv2.ObjectMetricStatus{Current: current(&s.CurrentValue, s.AverageValue, nil)}
	}
	if s := m.Pods; s != nil {
		n.Pods = &autoscalingv2.PodsMetricStatus{Current: current(nil, &s.CurrentAverageValue, nil)}
	}
	if s := m.Resource; s != nil {
		n.Resource = &autoscalingv2.ResourceMetricStatus{
			Name: s.Name, Current: current(nil, &s.CurrentAverageValue, s.CurrentAverageUtilization),
		}
	}
	if s := m.ContainerResource; s != nil {
		n.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name: s.Name, Current: current(nil, &s.CurrentAverageValue, s.CurrentAverageUtilization),
		}
	}
	if s := m.External; s != nil {
		n.External = &autoscalingv2.ExternalMetricStatus{Current: current(&s.CurrentValue, s.CurrentAverageValue, nil)}
	}
	return n
}
