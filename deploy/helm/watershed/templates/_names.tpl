{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright The Watershed Authors
*/ -}}

{{- define "watershed.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* fullname is the name of all objects: that of the release, with the name of the chart if it is not part of it. */ -}}
{{- define "watershed.fullname" -}}
{{- $name := include "watershed.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "watershed.selectorLabels" -}}
app.kubernetes.io/name: {{ include "watershed.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "watershed.labels" -}}
{{ include "watershed.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "watershed.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "watershed.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "watershed.image" -}}
{{- $image := .Values.image.repository -}}
{{- with .Values.image.registry }}{{ $image = printf "%s/%s" . $image }}{{ end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $image .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* certificateSecret is the name of the Secret with the server's certificate, empty if the program has its own authority. */ -}}
{{- define "watershed.certificateSecret" -}}
{{- if .Values.tls.secretName -}}
{{- .Values.tls.secretName -}}
{{- else if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "watershed.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- /* hosts is a list, as JSON, of the names at which clients reach the server. */ -}}
{{- define "watershed.hosts" -}}
{{- $name := include "watershed.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $hosts := list (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.cluster.local" $name $namespace) (printf "%s.%s" $name $namespace) $name -}}
{{- concat $hosts .Values.tls.hosts | uniq | toJson -}}
{{- end -}}

{{- /* groupCluster is the name of the cluster that has the Leases of the group. */ -}}
{{- define "watershed.groupCluster" -}}
{{- if .Values.group.cluster -}}
{{- .Values.group.cluster -}}
{{- else if .Values.clusters.inCluster.enabled -}}
{{- .Values.clusters.inCluster.name -}}
{{- end -}}
{{- end -}}

{{- /* groupNamespace is the namespace of these Leases. */ -}}
{{- define "watershed.groupNamespace" -}}
{{- default .Release.Namespace .Values.group.namespace -}}
{{- end -}}

{{- /* claimPerReplica prints true if the pods are those of a StatefulSet, each with a claim of its own. */ -}}
{{- define "watershed.claimPerReplica" -}}
{{- if and .Values.group.enabled .Values.state.persistence.enabled }}true{{ end -}}
{{- end -}}
