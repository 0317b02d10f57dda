// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The fields that the two managers of a deployment's pod own, in the form that the API
// server records. They are the same for all generated pods, as they are for all real pods
// of one shape.
var (
	specFields   = specFieldSet()
	statusFields = statusFieldSet()
)

func managedFields(made metav1.Time) []metav1.ManagedFieldsEntry {
	later := metav1.NewTime(made.Add(4 * time.Second))
	return []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time: &made, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(specFields),
	}, {
		Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		Time: &later, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(statusFields), Subresource: "status",
	}}
}

func specFieldSet() string {
	probe := fields("f:failureThreshold", "f:httpGet", "f:periodSeconds", "f:timeoutSeconds")
	var env []string
	for e := range 8 {
		env = append(env, fmt.Sprintf(`"k:{\"name\":\"SERVICE_SETTING_%d\"}":{}`, e))
	}
	container := func(name, env string) string {
		return fmt.Sprintf(`"k:{\"name\":\"%s\"}":{".":{},"f:args":{},"f:env":{%s},"f:image":{},"f:livenessProbe":%s,"f:name":{},"f:resources":{}}`,
			name, env, probe)
	}
	return `{"f:metadata":{"f:annotations":` + fields(".", "f:example.com/checksum", "f:example.com/cost-unit") +
		`,"f:generateName":{},"f:labels":` +
		fields(".", "f:app.kubernetes.io/name", "f:app.kubernetes.io/instance", "f:pod-template-hash", "f:team") +
		`,"f:ownerReferences":{".":{}}},"f:spec":{"f:containers":{` +
		container("main", strings.Join(env, ",")) + "," + container("metrics", "") +
		`},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{}}}`
}

func statusFieldSet() string {
	var conditions []string
	for _, c := range []string{"ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"} {
		conditions = append(conditions,
			fmt.Sprintf(`"k:{\"type\":\"%s\"}":%s`, c, fields(".", "f:lastTransitionTime", "f:status", "f:type")))
	}
	return `{"f:status":{"f:conditions":{` + strings.Join(conditions, ",") +
		`},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}}`
}

func fields(names ...string) string {
	return `{"` + strings.Join(names, `":{},"`) + `":{}}`
}
