// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wiretest

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/wire"
)

// PodKind is the kind of pods, with its Go type.
var PodKind = KindOf(corev1.SchemeGroupVersion.WithKind("Pod"))

// NewPod returns a pod as a Deployment creates it, about 4.7 KB in protobuf.
func NewPod(n int) *corev1.Pod {
	created := metav1.Unix(1.7e9+int64(n), 0)
	condition := func(t corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: "True", LastTransitionTime: created}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("checkout-7d9f8b9a3c-%06d", n), GenerateName: "checkout-7d9f8b9a3c-", Namespace: "shop",
			UID: types.UID(fmt.Sprintf("58cc0e2f-6a7b-8c9d-0e1f-%012d", n)), ResourceVersion: fmt.Sprint(1000000 + n),
			Generation:        1,
			CreationTimestamp: created,
			Labels: map[string]string{
				"app":                       "checkout",
				"pod-template-hash":         "7d9f8b9a3c",
				"app.kubernetes.io/part-of": "shop",
				"tier":                      "backend",
			},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true",
				"checksum/config":      "7d9f8b9a3c5e4f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70819a",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-7d9f8b9a3c", UID: "c9f0",
				Controller: new(true),
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				managed("kube-controller-manager", "", created), managed("kubelet", "status", created),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-7", RestartPolicy: "Always", DNSPolicy: "ClusterFirst", ServiceAccountName: "checkout",
			SchedulerName: "default-scheduler",
			Containers:    []corev1.Container{container("checkout"), container("proxy")},
			Volumes: []corev1.Volume{{
				Name: "config",
				VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "checkout"},
				}},
			}},
			Tolerations: []corev1.Toleration{{
				Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute",
				TolerationSeconds: new(int64(300)),
			}},
		},
		Status: corev1.PodStatus{
			Phase: "Running", HostIP: "10.0.0.7", PodIP: "10.1.7.12", PodIPs: []corev1.PodIP{{IP: "10.1.7.12"}},
			StartTime: &created, QOSClass: "Burstable",
			Conditions: []corev1.PodCondition{
				condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled"),
			},
			ContainerStatuses: []corev1.ContainerStatus{
				containerStatus("checkout", created), containerStatus("proxy", created),
			},
		},
	}
}

// The fields of a pod that its managers own.
const ownedFields = `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"c9f0\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"checkout\"}":{".":{},"f:args":{},"f:env":{".":{}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{},"f:resources":{},"f:volumeMounts":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:volumes":{}}}`

func managed(manager, subresource string, at metav1.Time) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: "Update", APIVersion: "v1", Time: &at, Subresource: subresource,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(ownedFields),
	}
}

func environment(prefix string, count int) (all []corev1.EnvVar) {
	for i := range count {
		all = append(all, corev1.EnvVar{
			Name:  fmt.Sprintf("%s_SETTING_%d", prefix, i),
			Value: fmt.Sprintf("https://%s.shop.svc.cluster.local:8443/path/%d", prefix, i),
		})
	}
	return all
}

func container(name string) corev1.Container {
	resources := corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("512Mi")},
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
	}
	return corev1.Container{
		Name: name, Image: "registry.example.com/shop/" + name + ":v1.4.2",
		Args: []string{"--listen=:8080", "--log-level=info"},
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080, Protocol: "TCP"},
			{Name: "metrics", ContainerPort: 9090, Protocol: "TCP"},
		},
		Env: environment(name, 8), Resources: resources,
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/config", ReadOnly: true},
			{
				Name:      "kube-api-access-x7x2p",
				MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
				ReadOnly:  true,
			},
		},
		LivenessProbe: &corev1.Probe{
			PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
		},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
		ImagePullPolicy: "IfNotPresent",
	}
}

func containerStatus(name string, created metav1.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Ready: true, Started: new(true), RestartCount: 1,
		Image: "registry.example.com/shop/" + name + ":v1.4.2",
		ImageID: "registry.example.com/shop/" + name +
			"@sha256:7d9f8b9a3c5e4f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70819a",
		ContainerID: "containerd://58cc0e2f6a7b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f",
		State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
	}
}

// SmallPod returns a pod for tests that check every byte.
func SmallPod(n int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("p\"%d", n),
			Namespace:       "shop",
			ResourceVersion: fmt.Sprint(100 + n),
			Labels:          map[string]string{"app": "a"},
		},
		Spec: corev1.PodSpec{NodeName: "n"},
	}
}

// PodBytes returns the bytes of a pod, without an envelope.
func PodBytes(tb testing.TB, e wire.Encoding, n int) []byte {
	tb.Helper()
	return Bare(tb, e, Encode(tb, e, corev1.SchemeGroupVersion, NewPod(n)))
}

// PodObject returns a pod as an object.
func PodObject(tb testing.TB, e wire.Encoding, n int) *wire.Object {
	tb.Helper()
	o, err := wire.NewObject(PodBytes(tb, e, n), e, PodKind)
	Must(tb, err)
	return o
}

// PodList returns a list of n pods as the API server sends it.
func PodList(tb testing.TB, e wire.Encoding, n int) []byte {
	tb.Helper()
	list := &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "4711", Continue: "next\"page", RemainingItemCount: new(int64(12))},
	}
	for i := range n {
		list.Items = append(list.Items, *NewPod(i))
	}
	return Encode(tb, e, corev1.SchemeGroupVersion, list)
}

// Until waits for an effect of garbage collection.
func Until(tb testing.TB, ok func() bool) {
	tb.Helper()
	expect.Soon(tb, "the effect of a garbage collection", ok)
}
