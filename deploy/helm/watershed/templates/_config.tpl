{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright The Watershed Authors
*/ -}}

{{- /* resources is the list of patterns of resources to mirror, as JSON. */ -}}
{{- define "watershed.resources" -}}
{{- concat .Values.config.mirror.resources .Values.extraResources | uniq | toJson -}}
{{- end -}}

{{- /* config is the configuration file: the value config, and the keys that other values of the chart determine. */ -}}
{{- define "watershed.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "apiVersion" "config.watershed.dev/v1alpha1" -}}
{{- $_ = set $config "kind" "Configuration" -}}
{{- $_ = set $config "listen" ":7443" -}}
{{- $_ = set $config "stateDir" "/var/lib/watershed" -}}
{{- $tls := dict "hosts" (include "watershed.hosts" . | fromJsonArray) -}}
{{- if include "watershed.certificateSecret" . -}}
{{- $_ = set $tls "certFile" "/etc/watershed/tls/tls.crt" -}}
{{- $_ = set $tls "keyFile" "/etc/watershed/tls/tls.key" -}}
{{- end -}}
{{- $_ = set $config "tls" $tls -}}
{{- $_ = set $config "shutdown" (dict "delay" (printf "%ds" (int .Values.shutdown.delaySeconds)) "grace" (printf "%ds" (int .Values.shutdown.graceSeconds))) -}}
{{- $sources := default dict $config.sources -}}
{{- if .Values.clusters.inCluster.enabled }}{{ $_ = set $sources "inCluster" .Values.clusters.inCluster.name }}{{ end -}}
{{- range .Values.clusters.kubeconfigSecrets -}}
{{- $_ = set $sources "directories" (append (default list $sources.directories) (printf "/etc/watershed/clusters/%s" .name)) -}}
{{- end -}}
{{- if $sources }}{{ $_ = set $config "sources" $sources }}{{ end -}}
{{- $_ = set $config.mirror "resources" (include "watershed.resources" . | fromJsonArray) -}}
{{- if .Values.state.persistence.objects -}}
{{- $storage := merge (dict "dir" "/var/lib/watershed/objects") (default dict $config.storage) -}}
{{- if .Values.state.persistence.keySecret }}{{ $_ = set $storage "keyFile" "/etc/watershed/keys/keys" }}{{ end -}}
{{- $_ = set $config "storage" $storage -}}
{{- end -}}
{{- if .Values.oidcCASecret }}{{ $_ = set $config "oidc" (merge (dict "caFile" "/etc/watershed/oidc/ca.crt") (default dict $config.oidc)) }}{{ end -}}
{{- if .Values.monitoring.plainPort }}{{ $_ = set $config "metricsListen" (printf "0.0.0.0:%d" (int .Values.monitoring.plainPort)) }}{{ end -}}
{{- if .Values.group.enabled -}}
{{- $name := include "watershed.fullname" . | replace "." "-" -}}
{{- $_ = set $config "group" (dict "name" $name "cluster" (include "watershed.groupCluster" .) "namespace" (include "watershed.groupNamespace" .) "listen" ":7444") -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* stateMiB is the size of the state directory if it is not a claim: 64 MiB, and the files of the audit log. Its defaults are those of serve. */ -}}
{{- define "watershed.stateMiB" -}}
{{- $audit := default dict .Values.config.audit -}}
{{- $size := 64 -}}
{{- if not (has (default "-" $audit.log) (list "-" "")) -}}
{{- $backups := hasKey $audit "maxBackups" | ternary $audit.maxBackups 10 -}}
{{- $size = add $size (mul (default 100 $audit.maxSizeMiB | int) (add1 (int $backups))) -}}
{{- end -}}
{{- $size -}}
{{- end -}}

{{- /* reloaded is a list, as JSON, of the keys and groups of keys whose changes take effect without a restart. */ -}}
{{- define "watershed.reloaded" -}}
{{- list "clusters" "connections" "shutdown" "sources" "mirror.resources" "mirror.except" "mirror.expendable"
  "limits.historyMiB" "limits.clusterObjects" "limits.clusterMemoryMiB" "fleet.users" "fleet.groups" "fleet.members"
  "audit.maxSizeMiB" "audit.maxBackups" | toJson -}}
{{- end -}}

{{- /* restartConfig is the part of the configuration file whose changes need a restart. */ -}}
{{- define "watershed.restartConfig" -}}
{{- $config := include "watershed.config" . | fromYaml -}}
{{- range include "watershed.reloaded" . | fromJsonArray -}}
{{- $p := splitn "." 2 . -}}
{{- if not $p._1 -}}
{{- $_ := unset $config $p._0 -}}
{{- else if get $config $p._0 -}}
{{- $_ := unset (get $config $p._0) $p._1 -}}
{{- if not (get $config $p._0) }}{{ $_ = unset $config $p._0 }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}
