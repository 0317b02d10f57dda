{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright The Watershed Authors
*/ -}}

{{- /* validate refuses values that would make a release that cannot work. The schema cannot express these rules. */ -}}
{{- define "watershed.validate" -}}
{{- $ownAuthority := not (include "watershed.certificateSecret" .) -}}
{{- if and (not .Values.clusters.inCluster.enabled) (not .Values.clusters.kubeconfigSecrets) (not .Values.extraArgs) -}}
{{- fail "clusters: there is nothing to mirror: enable clusters.inCluster, name Secrets in clusters.kubeconfigSecrets, or add another source with extraArgs" -}}
{{- end -}}
{{- if and .Values.clusters.inCluster.enabled (not .Values.serviceAccount.automountToken) -}}
{{- fail "serviceAccount.automountToken: clusters.inCluster needs the token of the service account" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) $ownAuthority -}}
{{- fail "replicas: with more than one replica, clients need one certificate for all: set tls.secretName or enable tls.certManager" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) .Values.state.persistence.enabled -}}
{{- fail "state.persistence: only one server can use a state folder: use one replica, or disable state.persistence" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled .Values.tls.secretName -}}
{{- fail "tls: set either tls.secretName or tls.certManager.enabled" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: name the issuer of the certificate" -}}
{{- end -}}
{{- if and (not .Values.access.home) (or .Values.access.fleetUsers .Values.access.fleetGroups) -}}
{{- fail "access.fleetUsers and access.fleetGroups have no effect without access.home" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled (not .Values.access.home) -}}
{{- fail "monitoring.serviceMonitor: /metrics needs access.home: the home cluster authenticates Prometheus" -}}
{{- end -}}
{{- if and .Values.mirror.namespace .Values.access.localRBAC -}}
{{- fail "access.localRBAC has no effect with mirror.namespace: ClusterRoles and their bindings are in no namespace" -}}
{{- end -}}
{{- end -}}

{{- /* goMemLimit is a percentage of the memory limit, in MiB, for the Go runtime. Its argument has the fields limit and percent. */ -}}
{{- define "watershed.goMemLimit" -}}
{{- $limit := .limit -}}
{{- if not (kindIs "string" $limit) }}{{ $limit = printf "%d" (int64 $limit) }}{{ end -}}
{{- if not (regexMatch "^[0-9]+([.][0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$" $limit) -}}
{{- fail (printf "resources.limits.memory: %q does not have a form such as 4Gi or 512Mi" $limit) -}}
{{- end -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $bytes := mulf (regexFind "^[0-9.]+" $limit | float64) (get $units (regexFind "[A-Za-z]+$" $limit)) | int64 -}}
{{- printf "%dMiB" (div (mul $bytes .percent) 104857600) -}}
{{- end -}}
