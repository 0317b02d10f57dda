// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

func podPrinter() *Printer {
	return &Printer{columns: podColumns(), cells: of(podCells), conditions: podConditions}
}

func podColumns() []column {
	spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
		text("Status", "The aggregate status of the containers in this pod."),
		text("Restarts", "The number of times the containers in this pod have been restarted and when the last "+
			"container in this pod has restarted."),
		ageColumn,
		wide(text("IP", status["podIP"])),
		wide(text("Node", spec["nodeName"])),
		wide(text("Nominated Node", status["nominatedNodeName"])),
		wide(text("Readiness Gates", spec["readinessGates"])),
	}
}

func podTemplateColumns() []column {
	return []column{nameColumn, containersColumn, imagesColumn, text("Pod Labels", "The labels for the pod template.")}
}

func podTemplateCells(o *corev1.PodTemplate, _ time.Time) []any {
	names, images := containers(o.Template.Spec.Containers)
	return []any{o.Name, names, images, labels.FormatLabels(o.Template.Labels)}
}

func podCells(pod *corev1.Pod, now time.Time) []any {
	s := summarize(pod)
	restarts := strconv.Itoa(s.restarts.count)
	if s.restarts.count != 0 && !s.restarts.last.IsZero() {
		restarts += " (" + age(s.restarts.last, now) + " ago)"
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name, ratio(s.ready, s.total), s.reason, restarts, age(pod.CreationTimestamp, now),
		or(ip, none), or(pod.Spec.NodeName, none), or(pod.Status.NominatedNodeName, none), readinessGates(pod),
	}
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return none
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if podCondition(pod, gate.ConditionType) {
			open++
		}
	}
	return ratio(open, len(pod.Spec.ReadinessGates))
}

// Rows share these: the conditions of a row are never modified.
var (
	podSucceeded = []metav1.TableRowCondition{{
		Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
		Reason: string(corev1.PodSucceeded), Message: "The pod has completed successfully.",
	}}
	podFailed = []metav1.TableRowCondition{{
		Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
		Reason: string(corev1.PodFailed), Message: "The pod failed.",
	}}
)

func podConditions(obj runtime.Object) []metav1.TableRowCondition {
	pod, ok := obj.(*corev1.Pod)
	switch {
	case ok && pod.Status.Phase == corev1.PodSucceeded:
		return podSucceeded
	case ok && pod.Status.Phase == corev1.PodFailed:
		return podFailed
	}
	return nil
}

// podSummary is the summary of a pod's state.
type podSummary struct {
	reason       string
	ready, total int
	restarts     restarts
}

// restarts counts the restarts of some containers.
type restarts struct {
	count int
	last  metav1.Time
}

func (r *restarts) add(c *corev1.ContainerStatus) {
	r.count += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && r.last.Before(&t.FinishedAt) {
		r.last = t.FinishedAt
	}
}

func summarize(pod *corev1.Pod) podSummary {
	s := podSummary{reason: or(pod.Status.Reason, string(pod.Status.Phase)), total: len(pod.Spec.Containers)}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	for i := range pod.Spec.InitContainers {
		if isSidecar(&pod.Spec.InitContainers[i]) {
			s.total++
		}
	}
	sidecars, initializing := s.initialize(pod)
	if !initializing || podCondition(pod, corev1.PodInitialized) {
		// Restarts of the init containers no longer count.
		s.restarts = sidecars
		s.run(pod)
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == "NodeLost":
			s.reason = "Unknown"
		case pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			s.reason = "Terminating"
		}
	}
	return s
}

// initialize reads the init containers, up to the first that delays the pod. It returns
// the restarts of the sidecars among them.
func (s *podSummary) initialize(pod *corev1.Pod) (sidecars restarts, initializing bool) {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		sidecar := isSidecar(initContainer(pod, c.Name))
		s.restarts.add(c)
		if sidecar {
			sidecars.add(c)
		}
		terminated, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case terminated != nil && terminated.ExitCode == 0:
			continue
		case sidecar && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case terminated != nil:
			s.reason = "Init:" + terminationReason(terminated)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = "Init:" + ratio(i, len(pod.Spec.InitContainers))
		}
		return sidecars, true
	}
	return sidecars, false
}

// run reads the containers. The first one with a reason determines the status, so they
// are read from the last to the first.
func (s *podSummary) run(pod *corev1.Pod) {
	running, failure := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = terminationReason(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	// One container has completed, but not necessarily the pod.
	switch {
	case running && podReady(pod):
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func terminationReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

// isSidecar reports whether an init container keeps running beside the others.
func isSidecar(c *corev1.Container) bool {
	return c != nil && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// initContainer returns the init container with a name, or nil.
func initContainer(pod *corev1.Pod, name string) *corev1.Container {
	// The last one with the name: names are unique anyway.
	for i := len(pod.Spec.InitContainers) - 1; i >= 0; i-- {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// podCondition reports whether the first condition of a type is true.
func podCondition(pod *corev1.Pod, t corev1.PodConditionType) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podReady reports whether any condition of the type Ready is true.
func podReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
