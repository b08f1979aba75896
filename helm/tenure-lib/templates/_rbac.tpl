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
# Sees who holds the Lease, is told of its release, and acquires, renews and releases it.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "tenure.leaseName" . }}]
  verbs: [get, watch, update]
# Makes it where it is missing. A rule cannot name what is yet to be made.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
{{- end -}}

{{/* In the namespace of the pod. */}}
{{- define "tenure.rules.pod" -}}
# Tells of each leader in the Events of its pod.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if eq .Values.routing.mode "label" }}
# Labels its own pod, and a new leader takes the label from pods that kept it. Rules cannot narrow that
# to a label or to pods of this release: routing.mode endpointslice needs nothing of the kind.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch]
{{- else }}
# The uid of its own pod, by which `kubectl describe pod` finds the Events.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- end }}
{{- if eq .Values.routing.mode "endpointslice" }}
# The ports of the leader's Service, and that it has no selector.
- apiGroups: [""]
  resources: [services]
  resourceNames: [{{ include "tenure.leaderServiceName" . }}]
  verbs: [get]
# Puts the leader's address into the EndpointSlice of that Service, and takes it out.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  resourceNames: [{{ include "tenure.leaderServiceName" . }}.{{ include "tenure.election" . }}]
  verbs: [get, update]
# Makes it where it is missing.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [create]
{{- end }}
{{- end -}}
