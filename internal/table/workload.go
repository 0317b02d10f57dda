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

// addWorkloads adds the kinds that keep pods running.
func (r registry) addWorkloads() {
	apps := appsv1.SchemeGroupVersion
	deployment := appsv1.DeploymentStatus{}.SwaggerDoc()
	r.add(apps, "Deployment", &Printer{
		columns: []column{
			nameColumn,
			text("Ready", "Number of the pod with ready state"),
			text("Up-to-date", deployment["updatedReplicas"]),
			text("Available", deployment["availableReplicas"]),
			ageColumn,
			wide(containersColumn),
			wide(imagesColumn),
			wide(text("Selector", appsv1.DeploymentSpec{}.SwaggerDoc()["selector"])),
		},
		cells: of(deploymentCells),
	})
	replicaSet := appsv1.ReplicaSetStatus{}.SwaggerDoc()
	r.add(apps, "ReplicaSet", &Printer{
		columns: []column{
			nameColumn,
			integer("Desired", appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"]),
			integer("Current", replicaSet["replicas"]),
			integer("Ready", replicaSet["readyReplicas"]),
			ageColumn,
			wide(containersColumn),
			wide(imagesColumn),
			wide(text("Selector", appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"])),
		},
		cells: of(func(o *appsv1.ReplicaSet, now time.Time) []any {
			names, images := containers(o.Spec.Template.Spec.Containers)
			return []any{
				o.Name, int64(deref(o.Spec.Replicas, 0)), int64(o.Status.Replicas), int64(o.Status.ReadyReplicas),
				age(o.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(o.Spec.Selector),
			}
		}),
	})
	controller := corev1.ReplicationControllerStatus{}.SwaggerDoc()
	r.add(corev1.SchemeGroupVersion, "ReplicationController", &Printer{
		columns: []column{
			nameColumn,
			integer("Desired", corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"]),
			integer("Current", controller["replicas"]),
			integer("Ready", controller["readyReplicas"]),
			ageColumn,
			wide(containersColumn),
			wide(imagesColumn),
			wide(text("Selector", corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"])),
		},
		cells: of(replicationControllerCells),
	})
	r.add(apps, "StatefulSet", &Printer{
		columns: []column{
			nameColumn, text("Ready", "Number of the pod with ready state"), ageColumn, wide(containersColumn), wide(imagesColumn),
		},
		cells: of(func(o *appsv1.StatefulSet, now time.Time) []any {
			names, images := containers(o.Spec.Template.Spec.Containers)
			return []any{o.Name, ratio(o.Status.ReadyReplicas, deref(o.Spec.Replicas, 0)), age(o.CreationTimestamp, now), names, images}
		}),
	})
	daemonSet := appsv1.DaemonSetStatus{}.SwaggerDoc()
	r.add(apps, "DaemonSet", &Printer{
		columns: []column{
			nameColumn,
			integer("Desired", daemonSet["desiredNumberScheduled"]),
			integer("Current", daemonSet["currentNumberScheduled"]),
			integer("Ready", daemonSet["numberReady"]),
			integer("Up-to-date", daemonSet["updatedNumberScheduled"]),
			integer("Available", daemonSet["numberAvailable"]),
			text("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]),
			ageColumn,
			wide(containersColumn),
			wide(imagesColumn),
			wide(text("Selector", appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"])),
		},
		cells: of(daemonSetCells),
	})
	r.add(apps, "ControllerRevision", &Printer{
		columns: []column{
			nameColumn,
			text("Controller", "Controller of the object"),
			text("Revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]),
			ageColumn,
		},
		cells: of(func(o *appsv1.ControllerRevision, now time.Time) []any {
			return []any{o.Name, owner(o), o.Revision, age(o.CreationTimestamp, now)}
		}),
	})
	r.add(policyv1.SchemeGroupVersion, "PodDisruptionBudget", &Printer{
		columns: []column{
			nameColumn,
			text("Min Available", "The minimum number of pods that must be available."),
			text("Max Unavailable", "The maximum number of pods that may be unavailable."),
			integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
			ageColumn,
		},
		cells: of(budgetCells),
	})
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

func replicationControllerCells(o *corev1.ReplicationController, now time.Time) []any {
	var names, images string
	if o.Spec.Template != nil {
		names, images = containers(o.Spec.Template.Spec.Containers)
	}
	return []any{
		o.Name, int64(deref(o.Spec.Replicas, 0)), int64(o.Status.Replicas), int64(o.Status.ReadyReplicas),
		age(o.CreationTimestamp, now), names, images, labels.FormatLabels(o.Spec.Selector),
	}
}

func daemonSetCells(o *appsv1.DaemonSet, now time.Time) []any {
	names, images := containers(o.Spec.Template.Spec.Containers)
	return []any{
		o.Name, int64(o.Status.DesiredNumberScheduled), int64(o.Status.CurrentNumberScheduled), int64(o.Status.NumberReady),
		int64(o.Status.UpdatedNumberScheduled), int64(o.Status.NumberAvailable),
		labels.FormatLabels(o.Spec.Template.Spec.NodeSelector), age(o.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(o.Spec.Selector),
	}
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
