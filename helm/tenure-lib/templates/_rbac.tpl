{{/* The rights of the sidecar: a Role and its RoleBinding, each rule with its reason. */}}

{{/*
Takes (dict "context" CONTEXT "serviceAccount" NAME "labels" YAML). Nothing where the sidecar does not
speak to the API server.
*/}}
{{- define "tenure.roles" -}}
{{- $context := .context -}}
{{- if include "tenure.needsApi" $context -}}
{{- $name := include "tenure.fullname" $context -}}
{{- $own := $context.Release.Namespace -}}
{{- $isStore := eq (include "tenure.storeKind" $context) "kubernetes" -}}
{{- $leaseNamespace := $isStore | ternary (include "tenure.leaseNamespace" $context) $own -}}
{{- if $isStore }}
{{ include "tenure.role" (dict "name" (printf "%s-lease" $name) "namespace" $leaseNamespace "own" $own "serviceAccount" .serviceAccount "labels" .labels "rules" (include "tenure.rules.lease" $context)) }}
{{- end }}
{{ include "tenure.role" (dict "name" $name "namespace" $own "own" $own "serviceAccount" .serviceAccount "labels" .labels "rules" (include "tenure.rules.pod" $context)) }}
{{- end -}}
{{- end -}}

{{- define "tenure.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- .labels | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- .labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .serviceAccount }}
    namespace: {{ .own }}
{{- end -}}

{{/* In the namespace of the Lease. */}}
{{- define "tenure.rules.lease" -}}
# Reads the Lease before each bid, is told of its changes, and renews and releases it.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "tenure.leaseName" . }}]
  verbs: [get, watch, update]
# Makes it once, where it is missing. A rule cannot name what is yet to be made.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
{{- end -}}

{{/* In the namespace of the pod. */}}
{{- define "tenure.rules.pod" -}}
# Says in the Events of the pod when it became leader and stopped to be.
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- if eq .Values.routing.mode "label" }}
# Labels its own pod, and a new leader takes the label from pods that kept it: their names are not
# known beforehand.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch]
{{- else }}
# Events name the pod by its uid.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- end }}
{{- if eq .Values.routing.mode "endpointslice" }}
# The ports of the Service that the EndpointSlice is for.
- apiGroups: [""]
  resources: [services]
  resourceNames: [{{ include "tenure.leaderServiceName" . }}]
  verbs: [get]
# The leader writes the one EndpointSlice of that Service.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  resourceNames: [{{ include "tenure.leaderServiceName" . }}]
  verbs: [get, update]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [create]
{{- end }}
{{- end -}}
