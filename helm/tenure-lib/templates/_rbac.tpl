{{/* The permissions of the sidecar: Roles and RoleBindings, each rule with its reason. */}}

{{/*
Takes (dict "context" CONTEXT "serviceAccount" NAME "labels" YAML), and optionally "annotations". Renders nothing if the sidecar does not
use the API server. The prefixes keep the names apart from those of Roles of your own and of other releases; a Lease
in another namespace can have Roles from several.

In Argo CD they have an earlier wave than the workload, and are deleted after it: the leader releases its lease with
these rights.
*/}}
{{- define "tenure.roles" -}}
{{- $context := .context -}}
{{- if or (include "tenure.needsApi" $context) $context.Values.routing.previousMode -}}
{{- $name := include "tenure.fullname" $context -}}
{{- $own := $context.Release.Namespace -}}
{{- $annotations := include "tenure.earlier" (dict "annotations" .annotations "by" 1) | fromYaml -}}
{{- $isStore := eq (include "tenure.storeKind" $context) "kubernetes" -}}
{{- $leaseNamespace := $isStore | ternary (include "tenure.leaseNamespace" $context) $own -}}
{{- if $isStore }}
{{- $elsewhere := eq $leaseNamespace $own | ternary "" (printf ".%s" $own) }}
{{ include "tenure.role" (dict "name" (printf "tenure-lease-%s%s" $name $elsewhere) "namespace" $leaseNamespace "own" $own "serviceAccount" .serviceAccount "labels" .labels "annotations" $annotations "rules" (include "tenure.rules.lease" $context)) }}
{{- end }}
{{ include "tenure.role" (dict "name" (printf "tenure-pod-%s" $name) "namespace" $own "own" $own "serviceAccount" .serviceAccount "labels" .labels "annotations" $annotations "rules" (include "tenure.rules.pod" $context)) }}
{{- end -}}
{{- end -}}

{{- define "tenure.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name | quote }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- .labels | nindent 4 }}
  annotations:
    {{- toYaml .annotations | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name | quote }}
  namespace: {{ .namespace | quote }}
  labels:
    {{- .labels | nindent 4 }}
  annotations:
    {{- toYaml .annotations | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ .serviceAccount | quote }}
    namespace: {{ .own | quote }}
{{- end -}}

{{/* The annotations for an earlier sync wave of Argo CD. Takes (dict "annotations" MAP "by" NUMBER). */}}
{{- define "tenure.earlier" -}}
{{- $wave := "argocd.argoproj.io/sync-wave" -}}
{{- $all := deepCopy (.annotations | default dict) -}}
{{- $_ := set $all $wave (sub (int (get $all $wave)) .by | toString) -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The rules in the namespace of the Lease. */}}
{{- define "tenure.rules.lease" -}}
# Read the holder of the Lease, learn of its release, and acquire, renew and release it.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "tenure.leaseName" . | quote }}]
  verbs: [get, watch, update]
# Create the Lease if it is missing. A rule for `create` cannot name the object.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
{{- end -}}

{{/* The rules in the namespace of the pod: for its mode of routing and for the previous one. */}}
{{- define "tenure.rules.pod" -}}
{{- $modes := list .Values.routing.mode .Values.routing.previousMode -}}
{{- $service := include "tenure.sliceServiceName" . -}}
# Create an Event on the pod for each new leader.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if has "label" $modes }}
# Label its own pod; a new leader also removes the label from pods that still have it. Rules cannot limit
# this to a label or to pods of this release. routing.mode endpointslice does not need it.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch]
{{- else if $service }}
# Notice that its own pod, or the pod of an endpoint, is gone; read the uid of its own pod, also for the Events.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- else }}
# Read the uid of its own pod, by which `kubectl describe pod` finds the Events.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- end }}
{{- if $service }}
# Read the ports of the leader's Service, and check that it has no selector.
- apiGroups: [""]
  resources: [services]
  resourceNames: [{{ $service | quote }}]
  verbs: [get]
# Add the leader's address to the EndpointSlice of that Service, and remove it.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  resourceNames: [{{ printf "%s.%s" $service (include "tenure.election" .) | quote }}]
  verbs: [get, update]
# Create the EndpointSlice if it is missing, and find endpoints of the Service that others wrote. Rules cannot
# limit either to one name.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [create, list]
{{- end }}
{{- end -}}
