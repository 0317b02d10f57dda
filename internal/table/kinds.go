// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	migrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// For returns the printer of a built-in kind, and false if the kind is not built in.
// Objects have the Go type of the kind in client-go's scheme. Those of
// CustomResourceDefinition and APIService, which the scheme does not have, are
// unstructured.
func For(kind schema.GroupVersionKind) (p *Printer, ok bool) {
	p, ok = builtin()[kind]
	return p, ok
}

// builtin returns the printers of the built-in kinds. They are made on first use.
var builtin = sync.OnceValue(func() map[schema.GroupVersionKind]*Printer {
	printers := map[schema.GroupVersionKind]*Printer{}
	for version, kinds := range kinds {
		for kind, printer := range kinds {
			printers[version.WithKind(kind)] = printer()
		}
	}
	return printers
})

// kinds has a function for every built-in kind that makes its printer. Most printers have
// columns and cells only.
var kinds = map[schema.GroupVersion]map[string]func() *Printer{
	corev1.SchemeGroupVersion: {
		"Pod":                   podPrinter,
		"PodTemplate":           printer(podTemplateColumns, podTemplateCells),
		"ReplicationController": printer(replicationControllerColumns, replicationControllerCells),
		"Node":                  printer(nodeColumns, nodeCells),
		"Namespace":             printer(namespaceColumns, namespaceCells),
		"ConfigMap":             printer(configMapColumns, configMapCells),
		"Secret":                printer(secretColumns, secretCells),
		"ServiceAccount":        nameAndAge,
		"LimitRange":            plain,
		"ResourceQuota":         printer(quotaColumns, quotaCells),
		"ComponentStatus":       printer(componentColumns, componentCells),
		"Event":                 printer(eventColumns, coreEventCells),
		"Service":               printer(serviceColumns, serviceCells),
		"Endpoints":             printer(endpointsColumns, endpointsCells),
		"PersistentVolume":      printer(volumeColumns, volumeCells),
		"PersistentVolumeClaim": printer(claimColumns, claimCells),
	},
	eventsv1.SchemeGroupVersion:    {"Event": printer(eventColumns, eventCells)},
	discoveryv1.SchemeGroupVersion: {"EndpointSlice": printer(endpointSliceColumns, endpointSliceCells)},
	appsv1.SchemeGroupVersion: {
		"Deployment":         printer(deploymentColumns, deploymentCells),
		"ReplicaSet":         printer(replicaSetColumns, replicaSetCells),
		"StatefulSet":        printer(statefulSetColumns, statefulSetCells),
		"DaemonSet":          printer(daemonSetColumns, daemonSetCells),
		"ControllerRevision": printer(revisionColumns, revisionCells),
	},
	policyv1.SchemeGroupVersion: {"PodDisruptionBudget": printer(budgetColumns, budgetCells)},
	batchv1.SchemeGroupVersion: {
		"Job":     printer(jobColumns, jobCells),
		"CronJob": printer(cronJobColumns, cronJobCells),
	},
	autoscalingv2.SchemeGroupVersion:  {"HorizontalPodAutoscaler": printer(autoscalerColumns, autoscalerCells)},
	autoscalingv1.SchemeGroupVersion:  {"HorizontalPodAutoscaler": printer(autoscalerColumns, autoscalerCellsV1)},
	coordinationv1.SchemeGroupVersion: {"Lease": printer(leaseColumns, leaseCells)},
	coordinationv1beta1.SchemeGroupVersion: {
		"LeaseCandidate": printer(candidateColumns, candidateCellsV1beta1),
	},
	coordinationv1alpha2.SchemeGroupVersion: {
		"LeaseCandidate": printer(candidateColumns, candidateCellsV1alpha2),
	},
	networkingv1.SchemeGroupVersion: {
		"Ingress":       printer(ingressColumns, ingressCells),
		"IngressClass":  printer(ingressClassColumns, ingressClassCells),
		"NetworkPolicy": printer(networkPolicyColumns, networkPolicyCells),
		"ServiceCIDR":   printer(serviceCIDRColumns, serviceCIDRCells),
		"IPAddress":     printer(ipAddressColumns, ipAddressCells),
	},
	storagev1.SchemeGroupVersion: {
		"StorageClass":          storageClassPrinter,
		"VolumeAttributesClass": printer(attributesClassColumns, attributesClassCells),
		"VolumeAttachment":      printer(attachmentColumns, attachmentCells),
		"CSINode":               printer(csiNodeColumns, csiNodeCells),
		"CSIDriver":             printer(csiDriverColumns, csiDriverCells),
		"CSIStorageCapacity":    plain,
	},
	nodev1.SchemeGroupVersion: {"RuntimeClass": printer(runtimeClassColumns, runtimeClassCells)},
	rbacv1.SchemeGroupVersion: {
		"Role":               plain,
		"ClusterRole":        plain,
		"RoleBinding":        printer(roleBindingColumns, roleBindingCells),
		"ClusterRoleBinding": printer(clusterRoleBindingColumns, clusterRoleBindingCells),
	},
	certificatesv1.SchemeGroupVersion: {
		"CertificateSigningRequest": printer(signingRequestColumns, signingRequestCells),
		"ClusterTrustBundle":        printer(trustBundleColumns, trustBundleCellsV1),
		"PodCertificateRequest":     printer(podRequestColumns, podRequestCellsV1),
	},
	certificatesv1beta1.SchemeGroupVersion: {
		"ClusterTrustBundle":    printer(trustBundleColumns, trustBundleCellsV1beta1),
		"PodCertificateRequest": printer(podRequestColumns, podRequestCellsV1beta1),
	},
	admissionv1.SchemeGroupVersion: {
		"MutatingWebhookConfiguration":     printer(webhookColumns, mutatingWebhookCells),
		"ValidatingWebhookConfiguration":   printer(webhookColumns, validatingWebhookCells),
		"ValidatingAdmissionPolicy":        printer(validatingPolicyColumns, validatingPolicyCells),
		"ValidatingAdmissionPolicyBinding": printer(policyBindingColumns, validatingBindingCells),
		"MutatingAdmissionPolicy":          printer(mutatingPolicyColumns, mutatingPolicyCellsV1),
		"MutatingAdmissionPolicyBinding":   printer(policyBindingColumns, mutatingBindingCellsV1),
	},
	admissionv1beta1.SchemeGroupVersion: {
		"MutatingAdmissionPolicy":        printer(mutatingPolicyColumns, mutatingPolicyCellsV1beta1),
		"MutatingAdmissionPolicyBinding": printer(policyBindingColumns, mutatingBindingCellsV1beta1),
	},
	admissionv1alpha1.SchemeGroupVersion: {
		"MutatingAdmissionPolicy":        printer(mutatingPolicyColumns, mutatingPolicyCellsV1alpha1),
		"MutatingAdmissionPolicyBinding": printer(policyBindingColumns, mutatingBindingCellsV1alpha1),
	},
	flowcontrolv1.SchemeGroupVersion: {
		"FlowSchema":                 flowPrinter,
		"PriorityLevelConfiguration": printer(levelColumns, levelCells),
	},
	resourcev1.SchemeGroupVersion: {
		"DeviceClass":           nameAndAge,
		"DeviceTaintRule":       printer(taintColumns, taintCellsV1),
		"ResourceClaim":         printer(deviceClaimColumns, deviceClaimCellsV1),
		"ResourceClaimTemplate": nameAndAge,
		"ResourceSlice":         printer(deviceSliceColumns, deviceSliceCellsV1),
	},
	resourcev1beta2.SchemeGroupVersion: {
		"DeviceClass":           nameAndAge,
		"DeviceTaintRule":       printer(taintColumns, taintCellsV1beta2),
		"ResourceClaim":         printer(deviceClaimColumns, deviceClaimCellsV1beta2),
		"ResourceClaimTemplate": nameAndAge,
		"ResourceSlice":         printer(deviceSliceColumns, deviceSliceCellsV1beta2),
	},
	resourcev1beta1.SchemeGroupVersion: {
		"DeviceClass":           nameAndAge,
		"ResourceClaim":         printer(deviceClaimColumns, deviceClaimCellsV1beta1),
		"ResourceClaimTemplate": nameAndAge,
		"ResourceSlice":         printer(deviceSliceColumns, deviceSliceCellsV1beta1),
	},
	resourcev1alpha3.SchemeGroupVersion: {
		"DeviceTaintRule":           printer(taintColumns, taintCellsV1alpha3),
		"ResourcePoolStatusRequest": printer(poolColumns, poolCells),
	},
	schedulingv1.SchemeGroupVersion: {"PriorityClass": printer(priorityClassColumns, priorityClassCells)},
	schedulingv1beta1.SchemeGroupVersion: {
		"Workload": nameAndAge,
		"PodGroup": printer(podGroupColumns, podGroupCellsV1beta1),
	},
	schedulingv1alpha3.SchemeGroupVersion: {
		"Workload":          nameAndAge,
		"PodGroup":          printer(podGroupColumns, podGroupCellsV1alpha3),
		"CompositePodGroup": printer(compositePodGroupColumns, compositePodGroupCells),
	},
	lifecyclev1alpha1.SchemeGroupVersion: {
		"EvictionRequest": printer(evictionRequestColumns, evictionRequestCells),
		"Eviction":        printer(evictionColumns, evictionCells),
	},
	internalv1alpha1.SchemeGroupVersion: {"StorageVersion": printer(storageVersionColumns, storageVersionCells)},
	migrationv1.SchemeGroupVersion:      {"StorageVersionMigration": printer(migrationColumns, migrationCellsV1)},
	migrationv1beta1.SchemeGroupVersion: {"StorageVersionMigration": printer(migrationColumns, migrationCellsV1beta1)},
	{Group: "apiregistration.k8s.io", Version: "v1"}: {
		"APIService": printer(apiServiceColumns, apiServiceCells),
	},
	{Group: "apiextensions.k8s.io", Version: "v1"}: {
		"CustomResourceDefinition": printer(definitionColumns, definitionCells),
	},
}
