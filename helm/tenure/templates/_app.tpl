{{/* Names, labels and images of the chart, and the metadata of its objects. */}}

{{- define "app.selector" -}}
app.kubernetes.io/name: {{ include "app.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The name of your service, which the objects bear: the alias, or the release if the chart is not a subchart. */}}
{{- define "app.name" -}}
{{- .Values.nameOverride | default (.Chart.IsRoot | ternary .Release.Name .Chart.Name) -}}
{{- end -}}

{{/* The version of your service: the tag of its image, if it can be a label. */}}
{{- define "app.version" -}}
{{- $name := include "app.image" . | splitList "@" | first | splitList "/" | last -}}
{{- regexFind ":[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $name | trimPrefix ":" -}}
{{- end -}}

{{/* The labels of each object. */}}
{{- define "app.labels" -}}
{{- $labels := include "app.selector" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- with include "app.version" . -}}
{{- $_ := set $labels "app.kubernetes.io/version" . -}}
{{- end -}}
{{- mergeOverwrite $labels (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/*
The metadata of an object. Takes (dict "context" . "name" NAME), and optionally "namespace", "labels" and
"annotations".
*/}}
{{- define "app.metadata" -}}
name: {{ .name | quote }}
namespace: {{ .namespace | default .context.Release.Namespace | quote }}
labels:
  {{- mergeOverwrite (include "app.labels" .context | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- with mergeOverwrite (deepCopy (.context.Values.commonAnnotations | default dict)) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "app.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "tenure.fullname" .) -}}
{{- end -}}

{{/* Your image: container.image, or image.repository with its tag or digest. */}}
{{- define "app.image" -}}
{{- $it := .Values.image -}}
{{- /* A number from a values file is a float, which would be written 2.0240501e+07. */ -}}
{{- $tag := kindIs "float64" $it.tag | ternary (printf "%.0f" $it.tag) (toString $it.tag) -}}
{{- $image := .Values.container.image | default (printf "%s%s" $it.repository ($it.digest | empty | ternary (printf ":%s" $tag) (printf "@%s" $it.digest))) -}}
{{- $registry := (.Values.global | default dict).imageRegistry -}}
{{- if and $registry (not (include "tenure.registry" $image)) -}}
{{ trimSuffix "/" $registry }}/{{ $image }}
{{- else -}}
{{ $image }}
{{- end -}}
{{- end -}}

{{/* The number of pods; empty if the chart does not set it: with autoscaling, kind DaemonSet or replicas=null. */}}
{{- define "app.replicas" -}}
{{- if not (or .Values.autoscaling.enabled (eq .Values.kind "DaemonSet")) -}}
{{- $count := kindIs "invalid" .Values.replicaCount | ternary .Values.replicas .Values.replicaCount -}}
{{- if not (kindIs "invalid" $count) -}}{{- int $count -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The most and the fewest pods that there can be, as far as the values tell. */}}
{{- define "app.mostReplicas" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas (include "app.replicas" . | default "2") | int -}}
{{- end -}}

{{- define "app.leastReplicas" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.minReplicas (include "app.replicas" . | default "2") | int -}}
{{- end -}}

{{/* The labels that select the pod of `helm test`, which no Service selects. */}}
{{- define "app.testSelector" -}}
app.kubernetes.io/name: {{ include "app.name" . | trunc 58 | printf "%s-test" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* "true" if there is a PodDisruptionBudget: a drain of a node ignores the pods of a DaemonSet. */}}
{{- define "app.hasPdb" -}}
{{- if kindIs "bool" .Values.pdb.enabled -}}
{{- if .Values.pdb.enabled -}}true{{- end -}}
{{- else if not (or (eq .Values.routing.mode "probe") (eq .Values.kind "DaemonSet")) -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if there is a Service that follows the leader. */}}
{{- define "app.hasLeaderService" -}}
{{- if has .Values.routing.mode (list "label" "endpointslice") -}}true{{- end -}}
{{- end -}}

{{/* The name by which all sidecars are reached, ready or not; their certificate should be for it. */}}
{{- define "app.podsHost" -}}
{{- include "tenure.fullname" . }}-pods.{{ .Release.Namespace }}.svc
{{- end -}}
