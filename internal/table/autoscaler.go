// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"strconv"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

func autoscalerColumns() []column {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
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
		o.Name, o.Spec.ScaleTargetRef.Kind + "/" + o.Spec.ScaleTargetRef.Name, metricTargets(o.Spec.Metrics, o.Status.CurrentMetrics),
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
func currentMetric(t autoscalingv2.MetricSourceType, status *autoscalingv2.MetricStatus) *autoscalingv2.MetricValueStatus {
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
