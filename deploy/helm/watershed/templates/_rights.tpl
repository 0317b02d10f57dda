{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright The Watershed Authors

The rights are those that watershed rbac prints for the same flags. A test compares them.
*/ -}}

{{- /* matches prints true if one of the patterns, each with at most one star, matches the name. */ -}}
{{- define "watershed.matches" -}}
{{- $name := .name -}}
{{- range .patterns -}}
{{- if regexMatch (printf "^%s$" (regexQuoteMeta . | replace "\\*" ".*")) $name }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /* excluded prints true if one of the patterns of except matches the resource. */ -}}
{{- define "watershed.excluded" -}}
{{- $resource := .resource -}}
{{- $group := .group -}}
{{- range .except -}}
{{- $p := splitn "." 2 . -}}
{{- $anyGroup := or (eq . "*") (eq (default "" $p._1) "*") -}}
{{- if and (or (eq $p._0 "*") (eq $p._0 $resource)) (or $anyGroup (eq (default "" $p._1) $group)) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /* mirrored is a map, as JSON, from the groups of the mirrored resources to their names. */ -}}
{{- define "watershed.mirrored" -}}
{{- $groups := dict -}}
{{- $patterns := include "watershed.resources" . | fromJsonArray -}}
{{- if include "watershed.matches" (dict "name" .Values.clusters.inCluster.name "patterns" (dig "authorization" "localRBAC" list .Values.config)) -}}
{{- range list "roles" "clusterroles" "rolebindings" "clusterrolebindings" }}{{ $patterns = append $patterns (printf "%s.rbac.authorization.k8s.io" .) }}{{ end -}}
{{- end -}}
{{- $except := dig "mirror" "except" list .Values.config -}}
{{- range $patterns -}}
{{- if contains "*" . -}}
{{- fail (printf "config.mirror.resources: pattern %q: its rights depend on the cluster: name the resources, or set rbac.create=false and apply the output of watershed rbac" .) -}}
{{- end -}}
{{- $p := splitn "." 2 . -}}
{{- $group := default "" $p._1 -}}
{{- if not (include "watershed.excluded" (dict "resource" $p._0 "group" $group "except" $except)) -}}
{{- $_ := set $groups $group (append (default (list) (get $groups $group)) $p._0) -}}
{{- end -}}
{{- end -}}
{{- $groups | toJson -}}
{{- end -}}

{{- /* readRules are the rules to read resources. Without a namespace, they include the metadata of the objects that define types. */ -}}
{{- define "watershed.readRules" -}}
{{- $groups := include "watershed.mirrored" . | fromJson -}}
{{- range $group, $names := $groups }}
- apiGroups: [{{ $group | quote }}]
  resources:
    {{- range $names | sortAlpha | uniq }}
    - {{ . }}
    {{- end }}
  verbs: [get, list, watch]
{{- end }}
{{- if not (dig "mirror" "namespace" "" .Values.config) }}
{{- range $group, $name := dict "apiextensions.k8s.io" "customresourcedefinitions" "apiregistration.k8s.io" "apiservices" }}
{{- if not (has $name (default (list) (get $groups $group))) }}
- apiGroups: [{{ $group }}]
  resources: [{{ $name }}]
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* generalRules are the rules for the documents about types, and for the identity of the cluster. */ -}}
{{- define "watershed.generalRules" -}}
- nonResourceURLs: [/api, /api/*, /apis, /apis/*, /openapi/*, /version]
  verbs: [get]
{{- if not (include "watershed.everywhere" (dict "root" . "resource" "namespaces")) }}
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end }}
{{- end -}}

{{- /* everywhere prints true if all objects of a core resource are mirrored. */ -}}
{{- define "watershed.everywhere" -}}
{{- if and (not (dig "mirror" "namespace" "" .root.Values.config)) (has .resource (default (list) (get (include "watershed.mirrored" .root | fromJson) ""))) }}true{{ end -}}
{{- end -}}

{{- /* subjects is the service account of the program. */ -}}
{{- define "watershed.subjects" -}}
- kind: ServiceAccount
  name: {{ include "watershed.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
