// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields

import (
	"fmt"
	"strconv"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// builtin returns the sets of the kinds whose labels differ from those of most kinds.
var builtin = sync.OnceValue(func() map[schema.GroupVersionKind]*Set {
	core := corev1.SchemeGroupVersion
	pods := set(podValues, name, namespace, "status.podIPs") // no pod has a value for status.podIPs
	pods.labels["spec.host"] = "spec.nodeName"
	pods.elsewhere = map[string]string{"status.podIP": "", "status.podIPs": ""}
	jobs := set(map[string]func(*batchv1.Job) string{
		"status.successful": func(o *batchv1.Job) string { return strconv.Itoa(int(o.Status.Succeeded)) },
	}, name, namespace)
	jobs.elsewhere = map[string]string{"status.successful": "status.succeeded"}
	jobs.refuse = func(label string) string { return fmt.Sprintf("field label %q not supported for Job", label) }

	kinds := map[schema.GroupVersionKind]*Set{
		core.WithKind("Pod"): pods,
		core.WithKind("Node"): set(map[string]func(*corev1.Node) string{
			"spec.unschedulable": func(o *corev1.Node) string { return strconv.FormatBool(o.Spec.Unschedulable) },
		}, name),
		core.WithKind("Namespace"): set(map[string]func(*corev1.Namespace) string{
			"status.phase": func(o *corev1.Namespace) string { return string(o.Status.Phase) },
		}, name),
		core.WithKind("Secret"): set(map[string]func(*corev1.Secret) string{
			"type": func(o *corev1.Secret) string { return string(o.Type) },
		}, name, namespace),
		core.WithKind("Service"): set(map[string]func(*corev1.Service) string{
			"spec.clusterIP": func(o *corev1.Service) string { return o.Spec.ClusterIP },
			"spec.type":      func(o *corev1.Service) string { return string(o.Spec.Type) },
		}, name, namespace),
		core.WithKind("ReplicationController"): set(map[string]func(*corev1.ReplicationController) string{
			"status.replicas": func(o *corev1.ReplicationController) string { return strconv.Itoa(int(o.Status.Replicas)) },
		}, name, namespace),
		core.WithKind("Event"):                        coreEvents(),
		eventsv1.SchemeGroupVersion.WithKind("Event"): events(),
		batchv1.SchemeGroupVersion.WithKind("Job"):    jobs,
	}
	addCertificates(kinds)
	addSlices(kinds)
	return kinds
})

// set returns a set with the labels of values, and others that need no value.
func set[O runtime.Object](values map[string]func(O) string, others ...string) *Set {
	s := &Set{labels: map[string]string{}, refuse: unsupported}
	for label := range values {
		s.labels[label] = label
	}
	for _, label := range others {
		s.labels[label] = label
	}
	s.value = func(obj runtime.Object, label string) string {
		value, known := values[label]
		o, ok := obj.(O)
		if !known || !ok {
			return ""
		}
		return value(o)
	}
	return s
}

var podValues = map[string]func(*corev1.Pod) string{
	"spec.nodeName":            func(o *corev1.Pod) string { return o.Spec.NodeName },
	"spec.restartPolicy":       func(o *corev1.Pod) string { return string(o.Spec.RestartPolicy) },
	"spec.schedulerName":       func(o *corev1.Pod) string { return o.Spec.SchedulerName },
	"spec.serviceAccountName":  func(o *corev1.Pod) string { return o.Spec.ServiceAccountName },
	"spec.hostNetwork":         func(o *corev1.Pod) string { return strconv.FormatBool(o.Spec.HostNetwork) },
	"status.phase":             func(o *corev1.Pod) string { return string(o.Status.Phase) },
	"status.nominatedNodeName": func(o *corev1.Pod) string { return o.Status.NominatedNodeName },
	"status.podIP": func(o *corev1.Pod) string {
		if len(o.Status.PodIPs) > 0 {
			return o.Status.PodIPs[0].IP
		}
		return o.Status.PodIP
	},
}

func addCertificates(kinds map[schema.GroupVersionKind]*Set) {
	v1, v1beta1 := certificatesv1.SchemeGroupVersion, certificatesv1beta1.SchemeGroupVersion
	const (
		signer = "spec.signerName"
		pod    = "spec.podName"
		node   = "spec.nodeName"
	)
	kinds[v1.WithKind("CertificateSigningRequest")] = set(map[string]func(*certificatesv1.CertificateSigningRequest) string{
		signer: func(o *certificatesv1.CertificateSigningRequest) string { return o.Spec.SignerName },
	}, name)
	kinds[v1.WithKind("ClusterTrustBundle")] = set(map[string]func(*certificatesv1.ClusterTrustBundle) string{
		signer: func(o *certificatesv1.ClusterTrustBundle) string { return o.Spec.SignerName },
	}, name)
	kinds[v1beta1.WithKind("ClusterTrustBundle")] = set(map[string]func(*certificatesv1beta1.ClusterTrustBundle) string{
		signer: func(o *certificatesv1beta1.ClusterTrustBundle) string { return o.Spec.SignerName },
	}, name)
	kinds[v1.WithKind("PodCertificateRequest")] = set(map[string]func(*certificatesv1.PodCertificateRequest) string{
		signer: func(o *certificatesv1.PodCertificateRequest) string { return o.Spec.SignerName },
		pod:    func(o *certificatesv1.PodCertificateRequest) string { return o.Spec.PodName },
		node:   func(o *certificatesv1.PodCertificateRequest) string { return string(o.Spec.NodeName) },
	}, name)
	kinds[v1beta1.WithKind("PodCertificateRequest")] = set(map[string]func(*certificatesv1beta1.PodCertificateRequest) string{
		signer: func(o *certificatesv1beta1.PodCertificateRequest) string { return o.Spec.SignerName },
		pod:    func(o *certificatesv1beta1.PodCertificateRequest) string { return o.Spec.PodName },
		node:   func(o *certificatesv1beta1.PodCertificateRequest) string { return string(o.Spec.NodeName) },
	}, name)
}

func addSlices(kinds map[schema.GroupVersionKind]*Set) {
	const (
		node   = resourcev1.ResourceSliceSelectorNodeName
		driver = resourcev1.ResourceSliceSelectorDriver
		pool   = resourcev1.ResourceSliceSelectorPoolName
	)
	add := func(version schema.GroupVersion, s *Set) {
		kind := version.WithKind("ResourceSlice")
		s.refuse = func(label string) string { return fmt.Sprintf("field label not supported for %s: %s", kind, label) }
		kinds[kind] = s
	}
	pointed := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	add(resourcev1.SchemeGroupVersion, set(map[string]func(*resourcev1.ResourceSlice) string{
		node:   func(o *resourcev1.ResourceSlice) string { return pointed(o.Spec.NodeName) },
		driver: func(o *resourcev1.ResourceSlice) string { return o.Spec.Driver },
		pool:   func(o *resourcev1.ResourceSlice) string { return o.Spec.Pool.Name },
	}, name))
	add(resourcev1beta2.SchemeGroupVersion, set(map[string]func(*resourcev1beta2.ResourceSlice) string{
		node:   func(o *resourcev1beta2.ResourceSlice) string { return pointed(o.Spec.NodeName) },
		driver: func(o *resourcev1beta2.ResourceSlice) string { return o.Spec.Driver },
		pool:   func(o *resourcev1beta2.ResourceSlice) string { return o.Spec.Pool.Name },
	}, name))
	add(resourcev1beta1.SchemeGroupVersion, set(map[string]func(*resourcev1beta1.ResourceSlice) string{
		node:   func(o *resourcev1beta1.ResourceSlice) string { return o.Spec.NodeName },
		driver: func(o *resourcev1beta1.ResourceSlice) string { return o.Spec.Driver },
		pool:   func(o *resourcev1beta1.ResourceSlice) string { return o.Spec.Pool.Name },
	}, name))
}
