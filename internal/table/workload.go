// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// readyPods is the column of the pods that are ready, of those that are wanted.
var readyPods = text("Ready", "Number of the pod with ready state")

func deploymentColumns() []column {
	status := appsv1.DeploymentStatus{}.SwaggerDoc()
	return append([]column{
		nameColumn,
		readyPods,
		text("Up-to-date", status["updatedReplicas"]),
		text("Available", status["availableReplicas"]),
		ageColumn,
	}, templateColumns(appsv1.DeploymentSpec{}.SwaggerDoc()["selector"])...)
}

func deploymentCells(o *appsv1.Deployment, now time.Time) []any {
	names, images := containers(o.Spec.Template.Spec.Containers)
	selector := "<invalid>"
	if s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector); err == nil {
		selector = s.String()
	}
	return []any{
		o.Name, ratio(o.Status.ReadyReplicas, deref(o.Spec.Replicas, 0)), int64(o.Status.UpdatedReplicas),
		int64(o.Status.AvailableReplicas), age(o.CreationTimestamp, now), names, images, selector,
	}
}

// replicaColumns returns the columns of a kind that keeps a number of pods running, from
// the documentation of its spec and its status.
func replicaColumns(spec, status map[string]string) []column {
	return append([]column{
		nameColumn,
		integer("Desired", spec["replicas"]),
		integer("Current", status["replicas"]),
		integer("Ready", status["readyReplicas"]),
		ageColumn,
	}, templateColumns(spec["selector"])...)
}

func replicaSetColumns() []column {
	return replicaColumns(appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc())
}

func replicaSetCells(o *appsv1.ReplicaSet, now time.Time) []any {
	names, images := containers(o.Spec.Template.Spec.Containers)
	return []any{
		o.Name, int64(deref(o.Spec.Replicas, 0)), int64(o.Status.Replicas), int64(o.Status.ReadyReplicas),
		age(o.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(o.Spec.Selector),
	}
}

func replicationControllerColumns() []column {
	return replicaColumns(corev1.ReplicationControllerSpec{}.SwaggerDoc(),
		corev1.ReplicationControllerStatus{}.SwaggerDoc())
}

func replicationControllerCells(o *corev1.ReplicationController, now time.Time) []any {
	var names, images string
	if o.Spec.Template != nil {
		names, images = containers(o.Spec.Template.Spec.Containers)
	}
	desired := int64(deref(o.Spec.Replicas, 0))
	current := int64(o.Status.Replicas)
	ready := int64(o.Status.ReadyReplicas)
	return []any{
		o.Name, desired, current, ready, age(o.CreationTimestamp, now), names, images,
		labels.FormatLabels(o.Spec.Selector),
	}
}

func statefulSetColumns() []column {
	return []column{nameColumn, readyPods, ageColumn, wide(containersColumn), wide(imagesColumn)}
}

func statefulSetCells(o *appsv1.StatefulSet, now time.Time) []any {
	names, images := containers(o.Spec.Template.Spec.Containers)
	return []any{
		o.Name, ratio(o.Status.ReadyReplicas, deref(o.Spec.Replicas, 0)), age(o.CreationTimestamp, now), names, images,
	}
}

func daemonSetColumns() []column {
	status := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return append([]column{
		nameColumn,
		integer("Desired", status["desiredNumberScheduled"]),
		integer("Current", status["currentNumberScheduled"]),
		integer("Ready", status["numberReady"]),
		integer("Up-to-date", status["updatedNumberScheduled"]),
		integer("Available", status["numberAvailable"]),
		text("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]),
		ageColumn,
	}, templateColumns(appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"])...)
}

func daemonSetCells(o *appsv1.DaemonSet, now time.Time) []any {
	names, images := containers(o.Spec.Template.Spec.Containers)
	return []any{
		o.Name, int64(o.Status.DesiredNumberScheduled), int64(o.Status.CurrentNumberScheduled),
		int64(o.Status.NumberReady),
		int64(o.Status.UpdatedNumberScheduled), int64(o.Status.NumberAvailable),
		labels.FormatLabels(o.Spec.Template.Spec.NodeSelector), age(o.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(o.Spec.Selector),
	}
}

func revisionColumns() []column {
	return []column{
		nameColumn,
		text("Controller", "Controller of the object"),
		text("Revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]),
		ageColumn,
	}
}

func revisionCells(o *appsv1.ControllerRevision, now time.Time) []any {
	return []any{o.Name, owner(o), o.Revision, age(o.CreationTimestamp, now)}
}

// owner returns the controller of an object, in the form in which kubectl names
// resources.
func owner(o metav1.Object) string {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil {
		return none
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	if kind.Empty() {
		return ref.Name
	}
	return strings.ToLower(kind.String()) + "/" + ref.Name
}

func budgetColumns() []column {
	return []column{
		nameColumn,
		text("Min Available", "The minimum number of pods that must be available."),
		text("Max Unavailable", "The maximum number of pods that may be unavailable."),
		integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
		ageColumn,
	}
}

func budgetCells(o *policyv1.PodDisruptionBudget, now time.Time) []any {
	available, unavailable := "N/A", "N/A"
	if n := o.Spec.MinAvailable; n != nil {
		available = n.String()
	}
	if n := o.Spec.MaxUnavailable; n != nil {
		unavailable = n.String()
	}
	return []any{o.Name, available, unavailable, int64(o.Status.DisruptionsAllowed), age(o.CreationTimestamp, now)}
}
