{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright The Watershed Authors
*/ -}}

{{- /* validate refuses values that would make a release that cannot work. The schema cannot express these rules. */ -}}
{{- define "watershed.validate" -}}
{{- $ownAuthority := not (include "watershed.certificateSecret" .) -}}
{{- if and (not .Values.clusters.inCluster.enabled) (not .Values.clusters.kubeconfigSecrets) (not .Values.config.sources) (not .Values.extraArgs) -}}
{{- fail "clusters: there is nothing to mirror: enable clusters.inCluster, name Secrets in clusters.kubeconfigSecrets, or set config.sources" -}}
{{- end -}}
{{- if and .Values.clusters.inCluster.enabled (not .Values.serviceAccount.automountToken) -}}
{{- fail "serviceAccount.automountToken: clusters.inCluster needs the token of the service account" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) $ownAuthority -}}
{{- fail "replicas: with more than one replica, clients need one certificate for all: set tls.secretName or enable tls.certManager" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) .Values.state.persistence.enabled (not .Values.group.enabled) -}}
{{- fail "state.persistence: only one server can use a state directory: use one replica, disable state.persistence, or enable group, whose replicas have a claim each" -}}
{{- end -}}
{{- if and .Values.group.enabled (lt (int .Values.replicas) 2) -}}
{{- fail "group.enabled: a group has two replicas or more: set replicas" -}}
{{- end -}}
{{- if and .Values.group.enabled .Values.state.persistence.enabled .Values.state.persistence.existingClaim -}}
{{- fail "state.persistence.existingClaim: each replica of a group has a claim of its own" -}}
{{- end -}}
{{- if and .Values.group.enabled (not (include "watershed.groupCluster" .)) -}}
{{- fail "group.cluster: name the cluster that has the Leases of the group, or enable clusters.inCluster" -}}
{{- end -}}
{{- if and .Values.state.persistence.objects (not .Values.state.persistence.enabled) -}}
{{- fail "state.persistence.objects: objects are stored in the claim: enable state.persistence" -}}
{{- end -}}
{{- if and .Values.state.persistence.keySecret (not .Values.state.persistence.objects) -}}
{{- fail "state.persistence.keySecret has no effect without state.persistence.objects" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled .Values.tls.secretName -}}
{{- fail "tls: set either tls.secretName or tls.certManager.enabled" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: name the issuer of the certificate" -}}
{{- end -}}
{{- if and (not (dig "fleet" "home" "" .Values.config)) (or (dig "fleet" "users" list .Values.config) (dig "fleet" "groups" list .Values.config)) -}}
{{- fail "config.fleet.users and config.fleet.groups have no effect without config.fleet.home" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled (not (dig "fleet" "home" "" .Values.config)) (not .Values.monitoring.plainPort) -}}
{{- fail "monitoring.serviceMonitor: /metrics needs config.fleet.home, the cluster that authenticates Prometheus, or monitoring.plainPort" -}}
{{- end -}}
{{- if and (dig "mirror" "namespace" "" .Values.config) (dig "authorization" "localRBAC" list .Values.config) -}}
{{- fail "config.authorization.localRBAC has no effect with config.mirror.namespace: ClusterRoles and their bindings are in no namespace" -}}
{{- end -}}
{{- end -}}
