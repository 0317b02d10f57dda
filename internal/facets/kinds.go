// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

// everyKind has the facets of all kinds: what identifies an object, its age, its owners, and the
// clients that wrote it with the API versions that they used.
var everyKind = []declared{
	{"metadata.uid", own},
	{"metadata.creationTimestamp", own},
	{"metadata.deletionTimestamp", shared},
	{"metadata.ownerReferences[*].kind", shared},
	{"metadata.ownerReferences[*].name", shared},
	{"metadata.managedFields[*].manager", shared},
	{"metadata.managedFields[*].apiVersion", shared},
}

// podFacets are the facets of pods. Those of one ReplicaSet have the same shared values, unless
// they are in different states.
var podFacets = []declared{
	{"status.podIP", own},
	{"status.podIPs[*].ip", own},
	{"status.hostIP", own},
	{"status.containerStatuses[*].restartCount", own},
	{"spec.nodeName", placed},
	{"spec.containers[*].image", shared},
	{"spec.initContainers[*].image", shared},
	{"spec.containers[*].resources.requests.cpu", shared},
	{"spec.containers[*].resources.requests.memory", shared},
	{"spec.containers[*].resources.limits.cpu", shared},
	{"spec.containers[*].resources.limits.memory", shared},
	{"spec.serviceAccountName", shared},
	{"status.phase", shared},
	{"status.reason", shared},
	{"status.containerStatuses[*].ready", shared},
	{"status.containerStatuses[*].state.waiting.reason", shared},
}

// templateImages are the images of a pod template.
var templateImages = []string{"spec.template.spec.containers[*].image", "spec.template.spec.initContainers[*].image"}

// columns are the printer columns of built-in kinds that are plain fields, by group and kind, and
// the addresses of kinds that are found by one. Name and age are facets of every kind. A path that
// a version of the kind does not have is unknown there.
var columns = map[string][]string{
	"/ReplicationController": append([]string{
		"spec.replicas", "status.replicas", "status.readyReplicas",
	}, templateImages...),
	"/Node": {
		"status.nodeInfo.kubeletVersion", "status.nodeInfo.osImage", "status.nodeInfo.kernelVersion",
		"status.nodeInfo.containerRuntimeVersion", "status.nodeInfo.architecture", "status.addresses[*].address",
		"status.addresses[*].type", "status.conditions[*].type", "status.conditions[*].status",
		"spec.unschedulable", "spec.podCIDR", "status.capacity.cpu", "status.capacity.memory",
	},
	"/Namespace": {"status.phase"},
	"/Secret":    {"type"},
	"/Event": {
		"type", "reason", "involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "count",
		"lastTimestamp", "source.component",
	},
	"/Service": {
		"spec.type", "spec.clusterIP", "spec.clusterIPs[*]", "spec.externalIPs[*]", "spec.externalName",
		"status.loadBalancer.ingress[*].ip", "status.loadBalancer.ingress[*].hostname", "spec.ports[*].port",
	},
	"/PersistentVolume": {
		"spec.capacity.storage", "spec.accessModes[*]", "spec.persistentVolumeReclaimPolicy", "status.phase",
		"spec.claimRef.namespace", "spec.claimRef.name", "spec.storageClassName", "status.reason", "spec.volumeMode",
		"spec.volumeAttributesClassName",
	},
	"/PersistentVolumeClaim": {
		"status.phase", "spec.volumeName", "status.capacity.storage", "status.accessModes[*]", "spec.storageClassName",
		"spec.volumeMode", "spec.volumeAttributesClassName",
	},
	"discovery.k8s.io/EndpointSlice": {"addressType", "ports[*].port"},
	"apps/Deployment": append([]string{
		"spec.replicas", "status.replicas", "status.readyReplicas", "status.updatedReplicas",
		"status.availableReplicas",
	}, templateImages...),
	"apps/ReplicaSet": append([]string{"spec.replicas", "status.replicas", "status.readyReplicas"}, templateImages...),
	"apps/StatefulSet": append([]string{
		"spec.replicas", "status.replicas", "status.readyReplicas",
	}, templateImages...),
	"apps/DaemonSet": append([]string{
		"status.desiredNumberScheduled", "status.currentNumberScheduled", "status.numberReady",
		"status.updatedNumberScheduled", "status.numberAvailable",
	}, templateImages...),
	"apps/ControllerRevision": {"revision"},
	"policy/PodDisruptionBudget": {
		"status.disruptionsAllowed", "status.currentHealthy", "status.desiredHealthy",
	},
	"batch/Job": append([]string{
		"spec.completions", "spec.parallelism", "status.succeeded", "status.failed", "status.active",
		"status.startTime", "status.completionTime", "spec.suspend",
	}, templateImages...),
	"batch/CronJob": {
		"spec.schedule", "spec.timeZone", "spec.suspend", "status.lastScheduleTime",
		"spec.jobTemplate.spec.template.spec.containers[*].image",
	},
	"autoscaling/HorizontalPodAutoscaler": {
		"spec.scaleTargetRef.kind", "spec.scaleTargetRef.name", "spec.minReplicas", "spec.maxReplicas",
		"status.currentReplicas",
	},
	"coordination.k8s.io/Lease": {"spec.holderIdentity"},
	"networking.k8s.io/Ingress": {
		"spec.ingressClassName", "spec.rules[*].host", "status.loadBalancer.ingress[*].ip",
		"status.loadBalancer.ingress[*].hostname",
	},
	"networking.k8s.io/IngressClass": {"spec.controller", "spec.parameters.kind", "spec.parameters.name"},
	"networking.k8s.io/ServiceCIDR":  {"spec.cidrs[*]"},
	"networking.k8s.io/IPAddress":    {"spec.parentRef.resource", "spec.parentRef.namespace", "spec.parentRef.name"},
	"storage.k8s.io/StorageClass": {
		"provisioner", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion",
	},
	"storage.k8s.io/VolumeAttributesClass": {"driverName"},
	"storage.k8s.io/VolumeAttachment": {
		"spec.attacher", "spec.source.persistentVolumeName", "spec.nodeName", "status.attached",
	},
	"storage.k8s.io/CSINode":          {"spec.drivers[*].name"},
	"storage.k8s.io/CSIDriver":        {"spec.attachRequired", "spec.podInfoOnMount", "spec.storageCapacity"},
	"node.k8s.io/RuntimeClass":        {"handler"},
	"scheduling.k8s.io/PriorityClass": {"value", "globalDefault", "preemptionPolicy"},
	"rbac.authorization.k8s.io/RoleBinding": {
		"roleRef.kind", "roleRef.name", "subjects[*].kind", "subjects[*].name", "subjects[*].namespace",
	},
	"rbac.authorization.k8s.io/ClusterRoleBinding": {
		"roleRef.kind", "roleRef.name", "subjects[*].kind", "subjects[*].name", "subjects[*].namespace",
	},
	"certificates.k8s.io/CertificateSigningRequest": {
		"spec.signerName", "spec.username", "spec.expirationSeconds", "status.conditions[*].type",
	},
	"certificates.k8s.io/ClusterTrustBundle": {"spec.signerName"},
	"flowcontrol.apiserver.k8s.io/FlowSchema": {
		"spec.priorityLevelConfiguration.name", "spec.matchingPrecedence", "spec.distinguisherMethod.type",
	},
	"flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": {
		"spec.type", "spec.limited.nominalConcurrencyShares",
	},
	"resource.k8s.io/ResourceSlice": {"spec.nodeName", "spec.driver", "spec.pool.name"},
	"apiregistration.k8s.io/APIService": {
		"spec.service.namespace", "spec.service.name", "status.conditions[*].type", "status.conditions[*].status",
	},
	"apiextensions.k8s.io/CustomResourceDefinition": {
		"spec.group", "spec.names.kind", "spec.scope", "status.storedVersions[*]",
	},
}
