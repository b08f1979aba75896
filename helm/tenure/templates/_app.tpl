{{/* Names and labels of the chart, and the pod that Deployment and StatefulSet share. */}}

{{- define "app.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "app.labels" -}}
{{ include "app.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "app.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "tenure.fullname" .) -}}
{{- end -}}

{{/* "true" if there is a PodDisruptionBudget. */}}
{{- define "app.hasPdb" -}}
{{- if kindIs "bool" .Values.pdb.enabled -}}
{{- if .Values.pdb.enabled -}}true{{- end -}}
{{- else if ne .Values.routing.mode "probe" -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if there is a Service that follows the leader. */}}
{{- define "app.hasLeaderService" -}}
{{- if has .Values.routing.mode (list "label" "endpointslice") -}}true{{- end -}}
{{- end -}}

{{- define "app.pod" -}}
metadata:
  labels:
    {{- include "app.labels" . | nindent 4 }}
    {{- include "tenure.podLabels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .Values.container.name | quote }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "app.serviceAccount" . | quote }}
  # The sidecar mounts its own token, see the volume tenure-api.
  automountServiceAccountToken: {{ .Values.container.serviceAccountToken }}
  # The variables for each Service of the namespace are not used.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ kindIs "invalid" .Values.terminationGracePeriodSeconds | ternary (include "tenure.terminationGracePeriodSeconds" .) (toString .Values.terminationGracePeriodSeconds) }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "app.spread" . | nindent 2 }}
  {{- if or .Values.sidecar.native .Values.initContainers }}
  initContainers:
    {{- with .Values.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if .Values.sidecar.native }}
    # The last one, so that it does not compete while the others run.
    - {{ include "tenure.container" . | nindent 6 | trim }}
    {{- end }}
  {{- end }}
  containers:
    {{- if not .Values.sidecar.native }}
    - {{ include "tenure.container" . | nindent 6 | trim }}
    {{- end }}
    - {{ include "app.container" . | nindent 6 | trim }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "tenure.volumes" . | nindent 4 }}
    {{- with .Values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Your container. */}}
{{- define "app.container" -}}
{{- $it := .Values.container -}}
name: {{ $it.name | quote }}
image: {{ $it.image | quote }}
{{- with $it.imagePullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- range $key := list "command" "args" }}
{{- with get $it $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
env:
  {{- include "tenure.url" . | nindent 2 }}
  {{- with $it.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $it.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $it.ports }}
ports:
  {{- range . }}
  - name: {{ .name | quote }}
    containerPort: {{ .containerPort }}
    protocol: {{ .protocol | default "TCP" }}
  {{- end }}
{{- end }}
{{- range $key := list "startupProbe" "readinessProbe" "livenessProbe" "lifecycle" "resources" "securityContext" }}
{{- with get $it $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- if or .Values.election.statusFile $it.volumeMounts }}
volumeMounts:
  {{- if .Values.election.statusFile }}
  - name: tenure-run
    mountPath: /run/tenure
    readOnly: true
  {{- end }}
  {{- with $it.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The failure of one node or one zone should not affect all candidates. */}}
{{- define "app.spread" -}}
topologySpreadConstraints:
{{- if kindIs "slice" .Values.topologySpreadConstraints }}
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "app.selector" $ | nindent 8 }}
    {{- if eq $.Values.kind "Deployment" }}
    # Do not count pods that a rollout is about to delete.
    matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}
