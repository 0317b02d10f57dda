// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wiretest

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/wire"
)

// as decodes an object as a T, or makes an empty one.
func as[T interface {
	wire.Pointer[P]
	runtime.Object
}, P any](o *wire.Object) (runtime.Object, error) {
	if o == nil {
		return T(new(P)), nil
	}
	return wire.DecodeFresh[T](o)
}

// typed decodes each kind as its own Go type.
var typed = func() map[schema.GroupVersionKind]func(*wire.Object) (runtime.Object, error) {
	m := map[schema.GroupVersionKind]func(*wire.Object) (runtime.Object, error){}
	for _, decode := range decoders {
		empty, err := decode(nil)
		if err != nil {
			panic(err)
		}
		gvks, _, err := scheme.Scheme.ObjectKinds(empty)
		if err != nil {
			panic(err)
		}
		m[gvks[0]] = decode
	}
	return m
}()

var decoders = []func(*wire.Object) (runtime.Object, error){
	as[*admissionregistrationv1.MutatingAdmissionPolicy],
	as[*admissionregistrationv1.MutatingAdmissionPolicyBinding],
	as[*admissionregistrationv1.MutatingWebhookConfiguration],
	as[*admissionregistrationv1.ValidatingAdmissionPolicy],
	as[*admissionregistrationv1.ValidatingAdmissionPolicyBinding],
	as[*admissionregistrationv1.ValidatingWebhookConfiguration],
	as[*appsv1.ControllerRevision],
	as[*appsv1.DaemonSet],
	as[*appsv1.Deployment],
	as[*appsv1.ReplicaSet],
	as[*appsv1.StatefulSet],
	as[*authenticationv1.SelfSubjectReview],
	as[*authenticationv1.TokenRequest],
	as[*authenticationv1.TokenReview],
	as[*authorizationv1.LocalSubjectAccessReview],
	as[*authorizationv1.SelfSubjectAccessReview],
	as[*authorizationv1.SelfSubjectRulesReview],
	as[*authorizationv1.SubjectAccessReview],
	as[*autoscalingv1.HorizontalPodAutoscaler],
	as[*autoscalingv1.Scale],
	as[*autoscalingv2.HorizontalPodAutoscaler],
	as[*batchv1.CronJob],
	as[*batchv1.Job],
	as[*certificatesv1.CertificateSigningRequest],
	as[*certificatesv1.ClusterTrustBundle],
	as[*certificatesv1.PodCertificateRequest],
	as[*coordinationv1.Lease],
	as[*corev1.Binding],
	as[*corev1.ComponentStatus],
	as[*corev1.ConfigMap],
	as[*corev1.Endpoints], //nolint:staticcheck // it is still served
	as[*corev1.Event],
	as[*corev1.LimitRange],
	as[*corev1.Namespace],
	as[*corev1.Node],
	as[*corev1.PersistentVolume],
	as[*corev1.PersistentVolumeClaim],
	as[*corev1.Pod],
	as[*corev1.PodTemplate],
	as[*corev1.RangeAllocation],
	as[*corev1.ReplicationController],
	as[*corev1.ResourceQuota],
	as[*corev1.Secret],
	as[*corev1.Service],
	as[*corev1.ServiceAccount],
	as[*discoveryv1.EndpointSlice],
	as[*eventsv1.Event],
	as[*extensionsv1beta1.DaemonSet],
	as[*extensionsv1beta1.Deployment],
	as[*extensionsv1beta1.Ingress],
	as[*extensionsv1beta1.NetworkPolicy],
	as[*extensionsv1beta1.ReplicaSet],
	as[*extensionsv1beta1.Scale],
	as[*flowcontrolv1.FlowSchema],
	as[*flowcontrolv1.PriorityLevelConfiguration],
	as[*networkingv1.IPAddress],
	as[*networkingv1.Ingress],
	as[*networkingv1.IngressClass],
	as[*networkingv1.NetworkPolicy],
	as[*networkingv1.ServiceCIDR],
	as[*nodev1.RuntimeClass],
	as[*policyv1.Eviction],
	as[*policyv1.PodDisruptionBudget],
	as[*rbacv1.ClusterRole],
	as[*rbacv1.ClusterRoleBinding],
	as[*rbacv1.Role],
	as[*rbacv1.RoleBinding],
	as[*resourcev1.DeviceClass],
	as[*resourcev1.DeviceTaintRule],
	as[*resourcev1.ResourceClaim],
	as[*resourcev1.ResourceClaimTemplate],
	as[*resourcev1.ResourceSlice],
	as[*schedulingv1.PriorityClass],
	as[*storagev1.CSIDriver],
	as[*storagev1.CSINode],
	as[*storagev1.CSIStorageCapacity],
	as[*storagev1.StorageClass],
	as[*storagev1.VolumeAttachment],
	as[*storagev1.VolumeAttributesClass],
	as[*storagemigrationv1.StorageVersionMigration],
}
