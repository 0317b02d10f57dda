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

// For returns the labels of a kind: those of metadata only, unless kube-apiserver has
// more. Objects have the Go type of the kind in client-go's scheme, or any type with
// metadata if there are no other labels.
func For(kind schema.GroupVersionKind) *Set {
	if s, ok := builtin()[kind]; ok {
		return s
	}
	return metadataOnly
}

var metadataOnly = &Set{
	labels: map[string]string{name: name, namespace: namespace},
	refuse: func(label string) string {
		return fmt.Sprintf("%q is not a known field selector: only %q, %q", label, name, namespace)
	},
}

// builtin returns the sets of the kinds whose labels differ from those of most kinds.
var builtin = sync.OnceValue(func() map[schema.GroupVersionKind]*Set {
	core := corev1.SchemeGroupVersion
	// kube-apiserver accepts status.podIPs, and its value is always empty
	pods := set(podValues, name, namespace, "status.podIPs")
	pods.labels["spec.host"] = "spec.nodeName"
	pods.paths = map[string]string{"status.podIP": "", "status.podIPs": ""}
	jobs := set(map[string]func(*batchv1.Job) string{
		"status.successful": func(o *batchv1.Job) string { return strconv.Itoa(int(o.Status.Succeeded)) },
	}, name, namespace)
	jobs.paths = map[string]string{"status.successful": "status.succeeded"}
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
			"status.replicas": func(o *corev1.ReplicationController) string {
				return strconv.Itoa(int(o.Status.Replicas))
			},
		}, name, namespace),
		core.WithKind("Event"):                        coreEvents(),
		eventsv1.SchemeGroupVersion.WithKind("Event"): events(),
		batchv1.SchemeGroupVersion.WithKind("Job"):    jobs,
	}
	addCertificates(kinds)
	addSlices(kinds)
	return kinds
})

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
	v1 := certificatesv1.SchemeGroupVersion
	v1beta1 := certificatesv1beta1.SchemeGroupVersion
	kinds[v1.WithKind("CertificateSigningRequest")] = signed(func(o *certificatesv1.CertificateSigningRequest) string {
		return o.Spec.SignerName
	})
	kinds[v1.WithKind("ClusterTrustBundle")] = signed(func(o *certificatesv1.ClusterTrustBundle) string {
		return o.Spec.SignerName
	})
	kinds[v1beta1.WithKind("ClusterTrustBundle")] = signed(func(o *certificatesv1beta1.ClusterTrustBundle) string {
		return o.Spec.SignerName
	})
	const podRequest = "PodCertificateRequest"
	kinds[v1.WithKind(podRequest)] = podRequests(func(o *certificatesv1.PodCertificateRequest) podRequestView {
		return podRequestView{o.Spec.SignerName, o.Spec.PodName, string(o.Spec.NodeName)}
	})
	kinds[v1beta1.WithKind(podRequest)] = podRequests(
		func(o *certificatesv1beta1.PodCertificateRequest) podRequestView {
			return podRequestView{o.Spec.SignerName, o.Spec.PodName, string(o.Spec.NodeName)}
		},
	)
}

// signed returns the labels of a kind of which the signer can be selected.
func signed[O runtime.Object](signer func(O) string) *Set {
	return set(map[string]func(O) string{"spec.signerName": signer}, name)
}

// podRequestView has the fields by which a pod's certificate request can be selected, in
// all versions.
type podRequestView struct{ signer, pod, node string }

func podRequests[O runtime.Object](view func(O) podRequestView) *Set {
	return set(map[string]func(O) string{
		"spec.signerName": func(o O) string { return view(o).signer },
		"spec.podName":    func(o O) string { return view(o).pod },
		"spec.nodeName":   func(o O) string { return view(o).node },
	}, name)
}

func addSlices(kinds map[schema.GroupVersionKind]*Set) {
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
	add(resourcev1.SchemeGroupVersion, resourceSlices(func(o *resourcev1.ResourceSlice) resourceSliceView {
		return resourceSliceView{pointed(o.Spec.NodeName), o.Spec.Driver, o.Spec.Pool.Name}
	}))
	add(resourcev1beta2.SchemeGroupVersion, resourceSlices(func(o *resourcev1beta2.ResourceSlice) resourceSliceView {
		return resourceSliceView{pointed(o.Spec.NodeName), o.Spec.Driver, o.Spec.Pool.Name}
	}))
	add(resourcev1beta1.SchemeGroupVersion, resourceSlices(func(o *resourcev1beta1.ResourceSlice) resourceSliceView {
		return resourceSliceView{o.Spec.NodeName, o.Spec.Driver, o.Spec.Pool.Name}
	}))
}

// resourceSliceView has the fields by which a resource slice can be selected, in all versions.
type resourceSliceView struct{ node, driver, pool string }

func resourceSlices[O runtime.Object](view func(O) resourceSliceView) *Set {
	return set(map[string]func(O) string{
		resourcev1.ResourceSliceSelectorNodeName: func(o O) string { return view(o).node },
		resourcev1.ResourceSliceSelectorDriver:   func(o O) string { return view(o).driver },
		resourcev1.ResourceSliceSelectorPoolName: func(o O) string { return view(o).pool },
	}, name)
}
