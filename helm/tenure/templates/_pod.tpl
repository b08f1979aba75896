{{/* The pod that all kinds of workload share, and your container in it. */}}

{{- define "app.pod" -}}
metadata:
  labels:
    {{- include "app.podLabels" . | nindent 4 }}
  annotations:
    {{- mergeOverwrite (include "app.podAnnotations" . | fromYaml) (.Values.podAnnotations | default dict) | toYaml | nindent 4 }}
spec:
  serviceAccountName: {{ include "app.serviceAccount" . | quote }}
  # The sidecar mounts its own token, see the volume tenure-api.
  automountServiceAccountToken: {{ .Values.container.serviceAccountToken | default false }}
  # The variables for each Service of the namespace are not used.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ kindIs "invalid" .Values.terminationGracePeriodSeconds | ternary (include "tenure.terminationGracePeriodSeconds" .) (toString .Values.terminationGracePeriodSeconds) }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- include "app.scheduling" . | nindent 2 }}
  {{- with include "app.fields" (list .Values "dnsConfig" "dnsPolicy" "hostAliases" "hostNetwork" "shareProcessNamespace") }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if ne .Values.kind "DaemonSet" }}
  {{- include "app.spread" . | nindent 2 }}
  {{- end }}
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

{{/* Labels of the pod. The chart's version is not one of them: another would restart every pod. */}}
{{- define "app.podLabels" -}}
{{- $labels := dict -}}
{{- with include "app.version" . -}}
{{- $_ := set $labels "app.kubernetes.io/version" . -}}
{{- end -}}
{{- mergeOverwrite $labels (.Values.commonLabels | default dict) (.Values.podLabels | default dict) (include "app.ownPodLabels" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* The labels that the workload, the Services and Tenure select pods by. */}}
{{- define "app.ownPodLabels" -}}
{{ include "app.selector" . }}
{{ include "tenure.podLabels" . }}
{{- end -}}

{{- define "app.podAnnotations" -}}
kubectl.kubernetes.io/default-container: {{ .Values.container.name | quote }}
{{- if and (include "tenure.workloadIdentity" .) (not .Values.container.azureIdentity) }}
{{- $names := list .Values.container.name }}
{{- range concat (.Values.initContainers | default list) (.Values.extraContainers | default list) }}
{{- $names = append $names .name }}
{{- end }}
# These get no token for the ServiceAccount's identity in Azure.
azure.workload.identity/skip-containers: {{ join ";" $names | quote }}
{{- end }}
{{- end -}}

{{/* Takes (list VALUES KEY…), and returns those that are set, as YAML. */}}
{{- define "app.fields" -}}
{{- $values := first . -}}
{{- $set := dict -}}
{{- range $key := rest . -}}
{{- with get $values $key -}}{{- $_ := set $set $key . -}}{{- end -}}
{{- end -}}
{{- if $set -}}{{- toYaml $set -}}{{- end -}}
{{- end -}}

{{/* Where pods run and what they need to start there, the pod of the test too. */}}
{{- define "app.scheduling" -}}
{{- $secrets := list -}}
{{- range concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{ end -}}
nodeSelector:
  {{- merge (dict) (.Values.nodeSelector | default dict) (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with include "app.fields" (list .Values "affinity" "priorityClassName" "runtimeClassName" "schedulerName" "tolerations") }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Your container. */}}
{{- define "app.container" -}}
{{- $it := .Values.container -}}
name: {{ $it.name | quote }}
image: {{ include "app.image" . | quote }}
{{- with $it.imagePullPolicy | default .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- with include "app.fields" (list $it "command" "args" "envFrom" "startupProbe" "readinessProbe" "livenessProbe" "lifecycle" "resources" "securityContext") }}
{{ . }}
{{- end }}
env:
  {{- include "tenure.url" . | nindent 2 }}
  {{- with $it.env }}
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
