{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright The Watershed Authors
*/ -}}

{{- /* arguments is the list of arguments of the program, as YAML. */ -}}
{{- define "watershed.arguments" -}}
- serve
- --listen=:7443
- --state-dir=/var/lib/watershed
{{- with .Values.clusters }}
{{- if .inCluster.enabled }}
- --in-cluster={{ .inCluster.name }}
{{- end }}
{{- range .kubeconfigSecrets }}
- --kubeconfig-dir=/etc/watershed/clusters/{{ .name }}
{{- end }}
{{- end }}
{{- with .Values.mirror }}
- --resources={{ join "," (concat .resources .extraResources | uniq) }}
{{- with .except }}
- --except={{ join "," . }}
{{- end }}
{{- with .namespace }}
- --namespace={{ . }}
{{- end }}
{{- with .selector }}
- {{ printf "--selector=%s" . | quote }}
{{- end }}
{{- if .dropManagedFields }}
- --drop-managed-fields
{{- end }}
- --history={{ int .historyMiB }}
{{- end }}
{{- include "watershed.accessArguments" .Values.access }}
{{- if .Values.audit.enabled }}
- --audit-log=-
{{- end }}
{{- if include "watershed.certificateSecret" . }}
- --tls-cert-file=/etc/watershed/tls/tls.crt
- --tls-key-file=/etc/watershed/tls/tls.key
{{- end }}
- --tls-san={{ join "," (include "watershed.hosts" . | fromJsonArray) }}
- --shutdown-delay={{ int .Values.shutdown.delaySeconds }}s
- --shutdown-grace={{ int .Values.shutdown.graceSeconds }}s
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "watershed.accessArguments" -}}
{{- with .home }}
- --home={{ . }}
{{- end }}
{{- with .fleetUsers }}
- {{ printf "--fleet-users=%s" (join "," .) | quote }}
{{- end }}
{{- with .fleetGroups }}
- {{ printf "--fleet-groups=%s" (join "," .) | quote }}
{{- end }}
{{- with .fleetMembers }}
- {{ printf "--fleet-members=%s" (join "," .) | quote }}
{{- end }}
{{- with .localRBAC }}
- {{ printf "--local-rbac=%s" (join "," .) | quote }}
{{- end }}
{{- if .passThrough }}
- --pass-through
{{- end }}
{{- with .oidc }}
{{- if .issuerURL }}
- {{ printf "--oidc-issuer-url=%s" .issuerURL | quote }}
- {{ printf "--oidc-client-id=%s" .clientID | quote }}
- {{ printf "--oidc-username-claim=%s" .usernameClaim | quote }}
- {{ printf "--oidc-username-prefix=%s" .usernamePrefix | quote }}
{{- with .groupsClaim }}
- {{ printf "--oidc-groups-claim=%s" . | quote }}
{{- end }}
{{- with .groupsPrefix }}
- {{ printf "--oidc-groups-prefix=%s" . | quote }}
{{- end }}
{{- if .caSecret }}
- --oidc-ca-file=/etc/watershed/oidc/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
