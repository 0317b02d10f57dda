// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"encoding/json"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

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
func modernMetrics(o *autoscalingv1.HorizontalPodAutoscaler, statuses []autoscalingv2.MetricStatus) []autoscalingv2.MetricSpec {
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
		return s.Type == autoscalingv2.ResourceMetricSourceType && s.Resource != nil && s.Resource.Name == corev1.ResourceCPU
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
		n.Pods = &autoscalingv2.PodsMetricSource{Target: autoscalingv2.MetricTarget{AverageValue: &s.TargetAverageValue}}
	}
	if s := m.Resource; s != nil {
		n.Resource = &autoscalingv2.ResourceMetricSource{
			Name:   s.Name,
			Target: autoscalingv2.MetricTarget{AverageValue: s.TargetAverageValue, AverageUtilization: s.TargetAverageUtilization},
		}
	}
	if s := m.ContainerResource; s != nil {
		n.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name:   s.Name,
			Target: autoscalingv2.MetricTarget{AverageValue: s.TargetAverageValue, AverageUtilization: s.TargetAverageUtilization},
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
