// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

func nodeColumns() []column {
	system := corev1.NodeSystemInfo{}.SwaggerDoc()
	status := corev1.NodeStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Status", "The status of the node"),
		text("Roles", "The roles of the node"),
		ageColumn,
		text("Version", system["kubeletVersion"]),
		wide(text("Internal-IP", status["addresses"])),
		wide(text("External-IP", status["addresses"])),
		wide(text("OS-Image", system["osImage"])),
		wide(text("Kernel-Version", system["kernelVersion"])),
		wide(text("Container-Runtime", system["containerRuntimeVersion"])),
	}
}

func nodeCells(node *corev1.Node, now time.Time) []any {
	info := &node.Status.NodeInfo
	kernel := or(info.KernelVersion, unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		node.Name, nodeStatus(node), nodeRoles(node), age(node.CreationTimestamp, now), info.KubeletVersion,
		nodeAddress(node, corev1.NodeInternalIP), nodeAddress(node, corev1.NodeExternalIP),
		or(info.OSImage, unknown), kernel, or(info.ContainerRuntimeVersion, unknown),
	}
}

func nodeStatus(node *corev1.Node) string {
	status := "Unknown"
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles of a node, from the names of some labels and the value of
// another.
func nodeRoles(node *corev1.Node) string {
	var roles []string
	for key, value := range node.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			value = role
		} else if key != "kubernetes.io/role" {
			continue
		}
		roles = append(roles, value)
	}
	return or(uniqueSorted(roles), none)
}

func nodeAddress(node *corev1.Node, t corev1.NodeAddressType) string {
	for i := range node.Status.Addresses {
		if a := &node.Status.Addresses[i]; a.Type == t {
			return a.Address
		}
	}
	return none
}

func runtimeClassColumns() []column {
	return []column{nameColumn, text("Handler", ""), ageColumn}
}

func runtimeClassCells(o *nodev1.RuntimeClass, now time.Time) []any {
	return []any{o.Name, o.Handler, age(o.CreationTimestamp, now)}
}
